/** Machines that can vanish, as benchmarks and tests use them. They need Linux and root. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { whyNoDelay } from '../../bench/common/delay.js';
import { Machines, whyNoMachines } from '../../bench/common/machines.js';

const why = whyNoMachines();
if (why !== undefined) process.stderr.write(`\nLEFT OUT: machines of network namespaces: ${why}\n\n`);

const noDelay = whyNoDelay();
if (noDelay !== undefined) process.stderr.write(`\nLEFT OUT: slow machines: ${noDelay}\n\n`);

const COMPILED = fileURLToPath(new URL('../../dist/bench/common/machines.js', import.meta.url));
const namespaces = (): string => execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' });

/** Sends a byte, waits for it to come back, and says how many milliseconds that took. */
const ECHO = `
  const socket = require('node:net').connect(process.argv[2], process.argv[1]);
  socket.once('connect', () => {
    const at = performance.now();
    socket.write('x');
    socket.once('data', () => {
      console.log(performance.now() - at);
      socket.destroy();
    });
  });`;

describe.runIf(why === undefined)('machines', () => {
  it.runIf(noDelay === undefined)(
    'are slow, and are not any more',
    async () => {
      const machines = new Machines();
      onTestFinished(() => machines.remove());
      const server = createServer((socket) => {
        socket.on('error', () => {});
        socket.pipe(socket);
      }).listen(0, machines.host);
      onTestFinished(() => void server.close());
      await once(server, 'listening');
      const { port } = server.address() as { port: number };
      const machine = machines.add();
      const echo = async (): Promise<number> => {
        const node = [process.execPath, '-e', ECHO, machines.host, `${port}`];
        const [program, ...args] = [...machines.on(machine), ...node];
        const child = spawn(program!, args, { stdio: ['ignore', 'pipe', 'inherit'] });
        const [said] = (await once(child.stdout, 'data')) as [Buffer];
        return Number(said.toString());
      };
      expect(await machines.slow(machine)).toBeUndefined();
      expect(await echo()).toBeGreaterThan(200);
      await machines.clear(machine);
      expect(await echo()).toBeGreaterThan(0);
      await machines.slow(machine);
      machines.remove();
      expect(namespaces()).not.toContain(machines.prefix);
    },
    60_000,
  );

  it.each(['SIGINT', 'SIGTERM'] as const)(
    'are gone when their program is ended by %s',
    async (signal) => {
      const program = `import { Machines } from ${JSON.stringify(COMPILED)};
      const machines = new Machines();
      await machines.slow(machines.add());
      console.log(machines.prefix);
      setInterval(() => {}, 1e6);`;
      const args = ['--input-type=module', '-e', program];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      onTestFinished(() => void child.kill('SIGKILL'));
      const [said] = (await once(child.stdout, 'data')) as [Buffer];
      const prefix = said.toString().trim();
      expect(namespaces()).toContain(prefix);
      child.kill(signal);
      expect(await once(child, 'exit')).toEqual([130, null]);
      expect(namespaces()).not.toContain(prefix);
    },
    30_000,
  );
});
