/**
 * Tokens and certificates of one run, made on the spot: nobody who could know them is left afterwards.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, KintsugiError } from '../../src/common/errors.js';

export interface Secrets {
  /** Token of clients; '': none. */
  token: string;
  /** Token of scheduler and PS; '': none. */
  nodeToken: string;
  /** A certificate that signs itself, with its key. */
  tls: { certFile: string; keyFile: string } | undefined;
  remove(): void;
}

/**
 * A certificate is for `addresses`.
 * @throws BAD_ARGUMENT when there is no openssl to make a certificate with
 */
export function makeSecrets(token: boolean, tls: boolean, addresses: readonly string[]): Secrets {
  const directory = tls ? mkdtempSync(join(tmpdir(), 'kintsugi-chaos-tls-')) : undefined;
  return {
    token: token ? makeToken() : '',
    nodeToken: token ? makeToken() : '',
    tls: directory === undefined ? undefined : makeCertificate(directory, addresses),
    remove() {
      if (directory !== undefined && existsSync(directory)) rmSync(directory, { recursive: true });
    },
  };
}

function makeToken(): string {
  return randomBytes(24).toString('base64url');
}

function makeCertificate(directory: string, addresses: readonly string[]): Secrets['tls'] {
  const files = { certFile: join(directory, 'cert.pem'), keyFile: join(directory, 'key.pem') };
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const names = addresses.map((address) => `IP:${address}`).join(',');
  const what = ['-days', '2', '-subj', '/CN=chaos', '-addext', `subjectAltName=${names}`];
  const where = ['-out', files.certFile, '-keyout', files.keyFile];
  try {
    execFileSync('openssl', ['req', '-x509', ...curve, ...what, ...where], { stdio: 'pipe' });
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    throw new KintsugiError('BAD_ARGUMENT', `--tls needs the openssl command: ${describe(error)}`);
  }
  return files;
}
