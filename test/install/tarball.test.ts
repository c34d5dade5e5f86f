// A newcomer's first steps, with the package as it is published and no compiler.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPTIONAL_PACKAGES } from '../../src/common/optional.js';
import { VERSION } from '../../src/common/package-root.js';
import { loadNative } from '../../src/engine/native.js';
import { type Ended, nodeOf, npmOf, Project, pack, ROOT } from './package.js';

const MINUTES = 60_000;
/** Lines of Node that are supported, and an npm that is current with them: 12 runs no install scripts. */
const LINES = [
  { node: 20, npm: 11 },
  { node: 22, npm: 11 },
  { node: 24, npm: 12 },
  { node: 26, npm: 12 },
];
/** The short form takes the oldest and the newest, and so both of npm. */
const { KINTSUGI_INSTALL_NODES: asked } = process.env;
const lines = LINES.filter(({ node }) => !asked || asked.split(',').includes(`${node}`));
/** Without optional packages. */
const MOST_BYTES = 16e6;

let packed = '';
let tarball = '';

beforeAll(async () => {
  packed = mkdtempSync(join(tmpdir(), 'kintsugi-packed-'));
  // While the addon is compiled, the rest is fetched.
  const fetching = lines.flatMap(({ node, npm }) => [nodeOf(node), npmOf(npm)]);
  [tarball] = await Promise.all([pack(packed), ...fetching]);
}, 10 * MINUTES);
afterAll(() => rmSync(packed, { recursive: true, force: true }));

/** The program of the README, as it stands there. */
function readmeProgram(): string {
  const [, program] = /## As a library\s+```js\n([\s\S]*?)```/.exec(
    readFileSync(join(ROOT, 'README.md'), 'utf8'),
  )!;
  return program!;
}

const refused = ({ code, stderr }: Ended, command: string) => {
  expect(code).toBe(2);
  expect(stderr.trim().split('\n').at(-1)).toContain('DEPENDENCY_MISSING');
  expect(stderr).toContain(command);
};

describe.skipIf(process.platform !== 'linux' || process.arch !== 'x64').each(lines)(
  'Node $node and npm $npm',
  { timeout: 10 * MINUTES },
  ({ node, npm }) => {
    let project: Project;

    beforeAll(async () => {
      project = new Project(await nodeOf(node), await npmOf(npm));
      await project.install(tarball);
    }, 10 * MINUTES);
    afterAll(() => project.remove());

    it('it is small, and the addon is the prebuilt one with the kernels of this processor', async () => {
      expect(project.installedBytes()).toBeLessThan(MOST_BYTES);
      const { code, stdout } = await project.kintsugi('doctor', '--install', '--json');
      expect(code).toBe(0);
      const { addon, packages } = JSON.parse(stdout);
      expect(addon).toMatchObject({ origin: 'prebuilt', isa: loadNative().isa });
      expect(packages.map(({ name, state }: { name: string; state: string }) => [name, state])).toEqual(
        Object.keys(OPTIONAL_PACKAGES).map((name) => [name, 'missing']),
      );
    });

    it('the program of the README loses a PS and reads its rows', async () => {
      project.write('program.mjs', readmeProgram());
      const { code, stdout, stderr } = await project.runNode('program.mjs');
      expect(stderr).toBe('');
      expect(code).toBe(0);
      // Initial values between -0.05 and 0.05, and a step of 0.1 down.
      const values = stdout.match(/-0\.\d+/g)!.map(Number);
      expect(values).toHaveLength(32);
      expect(values.filter((value) => value < -0.15 || value > -0.05)).toEqual([]);
    });

    // In the short form a line runs one whole job: this one, or the one of `init`.
    it.skipIf(asked && node >= 22)(
      'the demo trains what needs no further package, and loses nothing',
      async () => {
        const { code, stderr } = await project.kintsugi('demo', '--rows', '20000', '--keys', '2000');
        expect(stderr).toContain('npm install onnxruntime-node');
        expect(code).toBe(0);
        const { pushes } = JSON.parse(project.read('demo-out/report.json'));
        expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
      },
    );

    it('what needs a further package says which, and starts nothing', async () => {
      const data = ['--data', 'demo-out/train.tsv'];
      refused(await project.kintsugi('local', ...data), 'npm install onnxruntime-node');
      const store = await project.kintsugi('checkpoint', 'list', 's3://bucket/job');
      refused(store, 'npm install @aws-sdk/client-s3');
    });

    it('init writes a project that trains its model through the loss of a PS', async () => {
      const made = await project.kintsugi('init', 'clicks');
      if (node < 22) {
        expect(made).toMatchObject({
          code: 2,
          stderr: expect.stringContaining('which Node runs from 22.18'),
        });
        return;
      }
      expect(made).toMatchObject({ code: 0, stderr: '' });
      const { name, dependencies } = JSON.parse(project.read('clicks/package.json'));
      expect([name, dependencies]).toEqual(['clicks', { 'kintsugi-ps': `^${VERSION}` }]);
      const ended = await project.npm('clicks', 'start');
      expect(ended.code, ended.stderr).toBe(0);
      const { testAuc, pushes, failures } = JSON.parse(project.read('clicks/report.json'));
      expect(testAuc).toBeGreaterThan(0.7);
      expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
      expect(failures).toHaveLength(1);
      const again = await project.kintsugi('init', 'clicks');
      expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('holds something already') });
    });
  },
);
