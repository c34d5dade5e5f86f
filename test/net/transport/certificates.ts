/** Certificates made on the spot with the openssl command, for tests of TLS. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RoleTls } from '../../../src/net/transport/index.js';

export const hasOpenssl = spawnSync('openssl', ['version'], { stdio: 'ignore' }).status === 0;
if (!hasOpenssl) {
  const what = 'the tests of TLS: openssl is not installed (Debian: apt-get install openssl)';
  if (process.env.CI) throw new Error(`cannot leave out ${what}`);
  console.error(`\nLEFT OUT: ${what}`);
}

export interface Certificates {
  /** Certificate for the names, signed by `caFile`. */
  tls: Required<Pick<RoleTls, 'certFile' | 'keyFile'>> & { caFile: string };
  /** An authority that signed none of these certificates. */
  otherCa: string;
  remove(): void;
}

export function makeCertificates(names = 'DNS:localhost,DNS:node.test,IP:127.0.0.1'): Certificates {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-tls-'));
  const file = (name: string): string => join(directory, name);
  const openssl = (...args: string[]): void => {
    execFileSync('openssl', args, { cwd: directory, stdio: 'pipe' });
  };
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const authority = (name: string): void => {
    const files = ['-keyout', `${name}.key`, '-out', `${name}.pem`];
    const what = ['-days', '2', '-subj', `/CN=${name}`, '-addext', 'basicConstraints=critical,CA:TRUE'];
    openssl('req', '-x509', ...curve, ...files, ...what);
  };
  authority('ca');
  authority('other');
  openssl('req', ...curve, '-keyout', 'node.key', '-out', 'node.csr', '-subj', '/CN=node');
  writeFileSync(file('names'), `subjectAltName=${names}\n`);
  const signer = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial'];
  openssl(
    'x509',
    '-req',
    '-in',
    'node.csr',
    ...signer,
    '-out',
    'node.pem',
    '-days',
    '2',
    '-extfile',
    'names',
  );
  return {
    tls: { certFile: file('node.pem'), keyFile: file('node.key'), caFile: file('ca.pem') },
    otherCa: file('other.pem'),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}
