/** What `kintsugi doctor --install` says: what of this installation is there, and what it can do. */
import { addonFile, currentPlatform, platformText } from '../addon-file.js';
import { describe } from '../errors.js';
import { loadNative } from '../native.js';
import {
  findPackage,
  importOptional,
  installCommand,
  OPTIONAL_PACKAGES,
  type OptionalName,
} from '../optional.js';
import { VERSION } from '../package-root.js';

interface PackageState {
  name: OptionalName;
  /** What needs it. */
  feature: string;
  state: 'ready' | 'missing' | 'broken';
  version?: string | undefined;
  /** Where it lies, and of a broken one why it does not load. */
  path?: string | undefined;
  problem?: string | undefined;
  /** The command that installs it. */
  install: string;
}

export interface InstallReport {
  version: string;
  node: string;
  platform: string;
  addon: {
    path: string;
    origin: 'named' | 'compiled' | 'prebuilt';
    /** Of its kernels on this processor. */
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

/** For people; programs use --json. */
export function renderInstall({ version, node, platform, addon, packages }: InstallReport): string {
  const { origin, isa, path, problem } = addon;
  return [
    `kintsugi-ps ${version} on Node ${node}, ${platform}`,
    `${'native addon'.padEnd(20)}${problem ?? `${origin}, kernels for ${isa}: ${path}`}`,
    ...packages.map(packageLine),
    '',
  ].join('\n');
}
