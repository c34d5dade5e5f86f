/**
 * A free port, for foreign servers that cannot choose one themselves. The system gives none below
 * `FIRST_GIVEN` to others, neither to a connection nor for port 0: a server that starts again finds it free.
 */
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Linux has it as the first of `ip_local_port_range`. */
const FIRST_GIVEN = 32_768;
const FIRST = 20_000;

export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (FIRST_GIVEN - FIRST));
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch {
      // Another server has it.
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}
