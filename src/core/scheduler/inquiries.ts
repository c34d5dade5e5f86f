/**
 * Questions before a stalled sink is replaced (rule 30). Other members of the group may have died a moment
 * ago. So each of them must say that it lives, after the report has come: until then the sink, which is only
 * slow, may be the one that the group needs.
 */
import type { Group, PeerId, SinkEntry } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Ledger } from './ledger.js';

type StalledReport = MessageOf<'stalled'>;

export interface Inquiry {
  /** The owner that reported, and its report. */
  from: PeerId;
  report: StalledReport;
  /** Number of the question, which the answers repeat. */
  round: number;
  /** Nodes that have not answered, with their incarnations. */
  waits: Map<PeerId, number>;
}

export class Inquiries {
  /** By the sid of the sink. Soft state: the owner reports again. */
  private readonly open = new Map<number, Inquiry>();
  private round = 0;

  constructor(private readonly ledger: Ledger) {}

  /** Rounds of an earlier scheduler were lower. */
  startAt(now: number): void {
    this.round = Math.max(this.round, Math.floor(now));
  }

  /** Asks those that have not answered yet. A report of the same version of the group is the same inquiry. */
  ask(from: PeerId, report: StalledReport, group: Group, sink: SinkEntry): Inquiry {
    const known = this.open.get(report.sid);
    const same = known?.from === from && known.report.v === report.v && known.report.gen === report.gen;
    const inquiry = same ? known : this.begin(from, report, group, sink);
    const { node, inc } = sink;
    for (const to of inquiry.waits.keys())
      this.ledger.now({
        kind: 'send',
        to,
        message: { t: 'reach', node, inc, round: inquiry.round },
        parts: [],
      });
    return inquiry;
  }

  private begin(from: PeerId, report: StalledReport, { data, sinks }: Group, sink: SinkEntry): Inquiry {
    const waits = new Map([...data, ...sinks].map(({ node, inc }) => [node, inc]));
    waits.delete(sink.node);
    waits.delete(0);
    const inquiry = { from, report, round: ++this.round, waits };
    this.open.set(report.sid, inquiry);
    return inquiry;
  }

  /** The inquiries that wait for one node less. A node of an older program does not repeat the round. */
  answered(from: PeerId, { round }: MessageOf<'reached'>): Inquiry[] {
    const isAbout = (inquiry: Inquiry) => round === undefined || round === inquiry.round;
    return [...this.open.values()].filter((inquiry) => isAbout(inquiry) && inquiry.waits.delete(from));
  }

  end(sid: number): void {
    this.open.delete(sid);
  }

  /** Forgets what was asked of sinks that are gone. */
  keepOnly(isThere: (g: number, sid: number) => boolean): void {
    for (const [sid, { report }] of this.open) if (!isThere(report.g, sid)) this.open.delete(sid);
  }
}
