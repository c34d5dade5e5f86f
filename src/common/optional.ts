/**
 * Packages that a feature needs and that do not come with this one: they are large, or few need them. They
 * are loaded when they are used. This table has the purpose of each, and the command that installs it.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, KintsugiError } from './errors.js';

export interface OptionalPackage {
  /** The feature that does not work without the package. */
  feature: string;
  /** A way to do without the package, as the end of a sentence. */
  instead: string;
  /** Argument of `npm install`. */
  install: string;
}

export const OPTIONAL_PACKAGES = {
  'onnxruntime-node': {
    feature: 'DLRM',
    instead: 'or pass --model',
    // The script of the package downloads libraries for GPUs; the one for processors is in the package.
    install: 'onnxruntime-node --ignore-scripts',
  },
  '@aws-sdk/client-s3': {
    feature: 's3://',
    instead: 'or name a directory',
    install: '@aws-sdk/client-s3',
  },
  '@kubernetes/client-node': {
    feature: 'a kubeconfig',
    instead: 'or run it in a Pod',
    install: '@kubernetes/client-node',
  },
  hyparquet: {
    feature: 'parquet',
    instead: 'or convert the file to another format',
    install: 'hyparquet',
  },
  '@duckdb/node-api': {
    feature: 'parquet at full speed',
    instead: 'or do without: hyparquet reads the same',
    install: '@duckdb/node-api',
  },
  fzstd: {
    feature: 'zstd before Node 22.15',
    instead: 'or use a newer Node',
    install: 'fzstd',
  },
  lmdb: {
    feature: 'a job of version 0.1.0',
    instead: 'or begin with an empty directory',
    install: 'lmdb',
  },
  'uWebSockets.js': {
    feature: 'the server "uws"',
    instead: 'or use the server "ws"',
    // The registry has a community build only, which ends with Node 20.
    install:
      Number.parseInt(process.versions.node, 10) <= 20
        ? 'uWebSockets.js@npm:@rjweb/uws@1.5.0'
        : 'uWebSockets.js@uNetworking/uWebSockets.js#v20.52.0',
  },
} as const satisfies Record<string, OptionalPackage>;

export type OptionalName = keyof typeof OPTIONAL_PACKAGES;

export const installCommand = (name: OptionalName): string =>
  `npm install ${OPTIONAL_PACKAGES[name].install}`;

/** `name`: the package, one of its modules, or in tests another package. */
function missing(known: OptionalName, name: string, cause: unknown): KintsugiError {
  const { feature, instead, install } = OPTIONAL_PACKAGES[known];
  const reason = describe(cause).slice(0, 160);
  const wanted = name.startsWith(`${known}/`) ? known : name;
  const command = `npm install ${install.replace(known, wanted)}`;
  const text = `${feature} needs the package ${wanted} (${reason}); run "${command}", ${instead}`;
  return new KintsugiError('DEPENDENCY_MISSING', text, { cause });
}

/**
 * The package's module, or another one of it by `name`, which tests give another package.
 * @throws DEPENDENCY_MISSING with the command when it is not installed or cannot be loaded here
 */
export async function importOptional<T>(known: OptionalName, name: string = known): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (error) {
    throw missing(known, name, error);
  }
}

/**
 * As `importOptional`, for a process that serves others meanwhile. What a package needs is loaded before it,
 * one package in each turn of the event loop: as a whole, a large one keeps all requests waiting.
 */
export async function importInPieces<T>(known: OptionalName, name: string = known): Promise<T> {
  const found = findPackage(name);
  if (found) await loadNeeds(found.path, new Set([found.path]));
  try {
    // An import would look for the names that a module of CommonJS exports, which takes as long again.
    return createRequire(import.meta.url)(name) as T;
  } catch {
    return importOptional(known, name);
  }
}

/** Loads the packages that the one in the folder `path` needs, and what they need before them. */
async function loadNeeds(path: string, seen: Set<string>): Promise<void> {
  const from = join(path, 'package.json');
  const { dependencies = {} } = JSON.parse(readFileSync(from, 'utf8')) as { dependencies?: object };
  for (const name of Object.keys(dependencies)) {
    const needed = findPackage(name, from);
    if (!needed || seen.has(needed.path)) continue;
    seen.add(needed.path);
    await loadNeeds(needed.path, seen);
    try {
      createRequire(from)(name);
    } catch {
      // A package may have no module of its own name. Whoever needs another one of it loads that.
    }
    await turn();
  }
}

/**
 * Call this before processes are started that load the package. @throws DEPENDENCY_MISSING when it is not
 * installed
 */
export function demandOptional(known: OptionalName): void {
  if (!findPackage(known)) throw missing(known, known, 'it is not installed');
}

/** Where a package lies that the file `from` finds, and its version; undefined: it is not installed. */
export function findPackage(
  name: string,
  from: string = import.meta.url,
): { version: string; path: string } | undefined {
  // A package may keep its package.json to itself, so that it cannot be asked for by name.
  for (const folder of createRequire(from).resolve.paths(name) ?? []) {
    const path = resolve(folder, name);
    const manifest = join(path, 'package.json');
    if (!existsSync(manifest)) continue;
    return { version: (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version, path };
  }
  return undefined;
}
