/** Cluster events in words: what happened to whom, and how long after the failure. */
import { numberOf, type RoleEvent } from './events.js';
import type { KillRecord } from './report.js';
import { timeText } from './text.js';

interface NarratedRun {
  kill: KillRecord;
  detected: boolean;
  served: boolean;
  /** Lost shards that cannot serve yet, as group/member. */
  waiting: Set<string>;
  over: boolean;
}

export class Narrator {
  private readonly stories: NarratedRun[] = [];

  constructor(private readonly tell: (text: string) => void) {}

  /** True while a failure is not yet over. */
  get busy(): boolean {
    return this.stories.some((story) => !story.over && story.kill.role !== 'worker');
  }

  killed(kill: KillRecord, percent: number): void {
    const waiting = new Set(kill.shards.map(({ group, member }) => `${group}/${member}`));
    this.stories.push({ kill, detected: false, served: false, waiting, over: false });
    const held = kill.role === 'ps' ? `, which held ${kill.shards.length} data shards` : '';
    this.tell(`killed ${kill.name} at ${percent} %${held}`);
  }

  event(event: RoleEvent): void {
    for (const story of this.stories)
      if (!story.over && event.mono >= story.kill.mono) this.continue(story, event);
  }

  private continue(story: NarratedRun, event: RoleEvent): void {
    const { kill } = story;
    const after = timeText(event.mono - kill.mono);
    switch (event.event) {
      case 'map.durable':
        if (story.detected || event.name !== kill.name) return;
        story.detected = true;
        this.tell(`lost ${kill.name}, detected in ${after}`);
        return;
      case 'worker.lost':
        if (kill.role !== 'worker' || numberOf(event, 'client') !== kill.inc) return;
        story.over = true;
        this.tell(`the samples of ${kill.name} go to others after ${after}`);
        return;
      case 'scheduler.ready':
        if (kill.role !== 'scheduler') return;
        story.detected = true;
        this.tell(`the scheduler is back after ${after}`);
        return;
      case 'shard.keysReady':
        if (!story.waiting.delete(`${numberOf(event, 'group')}/${numberOf(event, 'member')}`)) return;
        if (story.waiting.size === 0) this.tell(`every shard of ${kill.name} can serve again after ${after}`);
        return;
      case 'redundancy':
        if (!story.detected || event.state !== 'full') return;
        story.over = true;
        this.tell(`redundant again after ${after}`);
    }
  }
}
