/**
 * The display of a running job, on standard error: a bar with lines above it on a terminal, plain lines
 * elsewhere, nothing with --quiet. Standard output is for the summary.
 */
import cliProgress from 'cli-progress';
import { countText } from './text.js';

export interface DisplayState {
  samples: number;
  total: number;
  samplesPerSecond: number;
  loss: number;
  /** State of the cluster in words: "redundant", "recovering 37 %". */
  cluster: string;
}

export interface Display {
  /** Tells an event in one line. */
  line(text: string): void;
  progress(state: DisplayState): void;
  end(): void;
}

const QUIET: Display = { line: () => {}, progress: () => {}, end: () => {} };

/** Without a terminal, progress is told in so many lines. */
const PLAIN_STEPS = 10;

class PlainDisplay implements Display {
  private step = 0;
  private cluster = '';

  constructor(private readonly write: (text: string) => void) {}

  line(text: string): void {
    this.write(`${text}\n`);
  }

  progress(state: DisplayState): void {
    const step = Math.floor((state.samples / Math.max(1, state.total)) * PLAIN_STEPS);
    if (step === this.step && state.cluster === this.cluster) return;
    this.step = step;
    this.cluster = state.cluster;
    this.line(describeProgress(state));
  }

  end(): void {}
}

function describeProgress({ samples, total, samplesPerSecond, loss, cluster }: DisplayState): string {
  const percent = Math.floor((samples / Math.max(1, total)) * 100);
  const lossText = Number.isFinite(loss) ? `loss ${loss.toFixed(4)}, ` : '';
  const rate = `${countText(samplesPerSecond)}/s`;
  return `${percent} % of ${countText(total)} samples, ${rate}, ${lossText}${cluster}`;
}

class BarDisplay implements Display {
  private readonly bars = new cliProgress.MultiBar({
    format: '[{bar}] {percentage} % | {value}/{total} samples | {rate}/s | loss {loss} | {cluster}',
    hideCursor: true,
    clearOnComplete: false,
    linewrap: false,
    stream: process.stderr,
  });
  private bar: cliProgress.SingleBar | undefined;

  line(text: string): void {
    if (this.bar) this.bars.log(`${text}\n`);
    else process.stderr.write(`${text}\n`);
  }

  progress({ samples, total, samplesPerSecond, loss, cluster }: DisplayState): void {
    const lossText = Number.isFinite(loss) ? loss.toFixed(4) : '-';
    const payload = { rate: countText(samplesPerSecond), loss: lossText, cluster };
    this.bar ??= this.bars.create(total, 0, payload);
    this.bar.update(samples, payload);
  }

  end(): void {
    this.bars.stop();
  }
}

export function createDisplay(quiet: boolean): Display {
  if (quiet) return QUIET;
  return process.stderr.isTTY ? new BarDisplay() : new PlainDisplay((text) => process.stderr.write(text));
}
