/** Bugs in the account of received frames. */
import type { Mutant } from './mutant.js';

const scenario = {
  test: 'test/core/shared/received-bytes.test.ts',
  because: 'messages of the simulator arrive whole: the transport puts frames together',
};

export const RECEIVED_MUTANTS: readonly Mutant[] = [
  {
    name: 'a link that closes keeps its window',
    file: 'shared/received-bytes',
    from: 'this.windows -= link.window;',
    to: ';',
    scenario,
  },
  {
    name: 'half a frame of a link that closes stays charged',
    file: 'shared/received-bytes',
    from: 'account.hold(-this.kept);\n        if (!frame)',
    to: 'account.hold(-this.kept);\n        if (true)',
    scenario,
  },
  {
    name: 'a piece is charged twice',
    file: 'shared/received-bytes',
    from: 'account.hold(bytes);',
    to: 'account.hold(2 * bytes);',
    scenario,
  },
  {
    name: 'a large piece is a whole window, and waits for credit that is owed',
    file: 'shared/received-bytes',
    from: 'return this.largeWindow / 2;',
    to: 'return this.largeWindow;',
    scenario,
  },
  {
    name: 'large windows leave none for others',
    file: 'shared/received-bytes',
    from: 'const LARGE_WINDOWS = 1 / 4;',
    to: 'const LARGE_WINDOWS = 1 / 2;',
    scenario,
  },
  {
    name: 'windows take the room of large frames',
    file: 'shared/received-bytes',
    from: 'const WINDOWS = 1 / 2;',
    to: 'const WINDOWS = 1;',
    scenario,
  },
  {
    name: 'a frame goes before those that wait for room',
    file: 'shared/received-bytes',
    from: 'this.waiting.size > 0 || !this.fits(bytes)',
    to: '!this.fits(bytes)',
    scenario,
  },
  {
    name: 'a frame that comes by small pieces keeps its room for minutes',
    file: 'shared/received-bytes',
    from: "place === 'room' ?",
    to: 'false ?',
    scenario,
  },
  {
    name: 'a frame with a small window is asked for more than credit allows',
    file: 'shared/received-bytes',
    from: 'Math.min(total * PROGRESS, this.window)',
    to: 'total * PROGRESS',
    scenario,
  },
  {
    name: 'nobody is told when the one that waits first is gone',
    file: 'shared/received-bytes',
    from: 'if (this.waiting.delete(link))\n            this.handOut();',
    to: 'this.waiting.delete(link);',
    scenario,
  },
  {
    name: 'what a link sends beyond its credit is taken',
    file: 'shared/received-bytes',
    from: 'return this.credit >= 0;',
    to: 'return true;',
    place: 1,
    scenario,
  },
  {
    name: 'credit of requests that wait is returned',
    file: 'shared/received-bytes',
    from: 'const free = this.owed - kept;',
    to: 'const free = this.owed;',
    scenario,
  },
  {
    name: 'a frame that began while credit was kept waits for more of it',
    file: 'shared/received-bytes',
    from: 'frame?.arrived === 0 || this.short',
    to: 'frame?.arrived === 0',
    scenario,
  },
  {
    name: 'a link whose requests wait is closed for the silence that they cause',
    file: 'shared/received-bytes',
    from: 'if (this.kept > 0 && this.credit < this.pieceBytes)',
    to: 'if (false)',
    scenario,
  },
  {
    name: 'requests that wait stay charged when their link closes',
    file: 'shared/received-bytes',
    from: 'account.hold(-this.kept);',
    to: ';',
    scenario,
  },
];
