/** The report of `kintsugi doctor --install`: which parts of this installation are there and work. */

import { describe } from '../common/errors.js';
import {
  findPackage,
  importOptional,
  installCommand,
  OPTIONAL_PACKAGES,
  type OptionalName,
} from '../common/optional.js';
import { VERSION } from '../common/package-root.js';
import { addonFile, currentPlatform, platformText } from '../engine/addon-file.js';
import { loadNative } from '../engine/native.js';

interface PackageState {
  name: OptionalName;
  /** The feature that needs the package. */
  feature: string;
  state: 'ready' | 'missing' | 'broken';
  version?: string | undefined;
  path?: string | undefined;
  /** Why a broken package does not load. */
  problem?: string | undefined;
  /** The command that installs the package. */
  install: string;
}

export interface InstallReport {
  version: string;
  node: string;
  platform: string;
  addon: {
    path: string;
    origin: 'named' | 'compiled' | 'prebuilt';
    /** Instruction set of the kernels that run on this processor. */
    isa?: string | undefined;
    problem?: string | undefined;
  };
  packages: PackageState[];
}

async function packageState(name: OptionalName): Promise<PackageState> {
  const about = { name, feature: OPTIONAL_PACKAGES[name].feature, install: installCommand(name) };
  const found = findPackage(name);
  if (!found) return { ...about, state: 'missing' };
  try {
    await importOptional(name);
    return { ...about, ...found, state: 'ready' };
  } catch (error) {
    const { cause } = error as { cause?: unknown };
    return { ...about, ...found, state: 'broken', problem: describe(cause ?? error) };
  }
}

export async function installReport(): Promise<InstallReport> {
  const addon: InstallReport['addon'] = addonFile();
  try {
    addon.isa = loadNative().isa;
  } catch (error) {
    addon.problem = describe(error);
  }
  const packages: PackageState[] = [];
  for (const name of Object.keys(OPTIONAL_PACKAGES) as OptionalName[])
    packages.push(await packageState(name));
  const platform = platformText(currentPlatform());
  return { version: VERSION, node: process.versions.node, platform, addon, packages };
}

function packageLine({ name, feature, state, version, problem, install }: PackageState): string {
  const label = name.padEnd(20);
  if (state === 'ready') return `${label}${version}: ${feature} is ready`;
  if (state === 'missing') return `${label}not installed: ${feature} needs it; ${install}`;
  return `${label}${version}: cannot be loaded (${problem?.slice(0, 160)})`;
}

/** Text for people; programs use --json. */
export function renderInstall({ version, node, platform, addon, packages }: InstallReport): string {
  const { origin, isa, path, problem } = addon;
  return [
    `kintsugi-ps ${version} on Node ${node}, ${platform}`,
    `${'native addon'.padEnd(20)}${problem ?? `${origin}, kernels for ${isa}: ${path}`}`,
    ...packages.map(packageLine),
    '',
  ].join('\n');
}
