/**
 * Finds the file of the native addon. A file that was compiled here (`npm run build`) goes before one that
 * came with the package. The latter lie in prebuilds/, one per platform and C library, named as
 * node-gyp-build names them. All of them are Node-API binaries: one serves every supported Node.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../common/package-root.js';

export interface AddonFile {
  /** Only for `compiled` it was checked that the file exists. */
  path: string;
  /** `KINTSUGI_ADDON` named it, it was compiled on this machine, or it came with the package. */
  origin: 'named' | 'compiled' | 'prebuilt';
}

/** The running system, as the folders and files in prebuilds/ name systems. */
export interface Platform {
  platform: string;
  arch: string;
  /** Only where there is more than one. */
  libc: 'glibc' | 'musl' | undefined;
}

/**
 * The C library among what is mapped into a process (/proc/PID/maps). musl's file is the loader, which Debian
 * keeps as libc.so of a folder.
 */
export const libcIn = (maps: string): 'glibc' | 'musl' =>
  /\/(ld-musl-|libc\.musl-)|-linux-musl\/libc\.so/.test(maps) ? 'musl' : 'glibc';

/** The C library of this process: an addon for the other one would bring a second C library in. */
function libcOf(platform: string): Platform['libc'] {
  if (platform !== 'linux') return undefined;
  try {
    return libcIn(readFileSync('/proc/self/maps', 'latin1'));
  } catch {
    return 'glibc';
  }
}

export function currentPlatform(): Platform {
  const { platform, arch } = process;
  return { platform, arch, libc: libcOf(platform) };
}

/** `linux-x64 (glibc)` */
export const platformText = ({ platform, arch, libc }: Platform): string =>
  `${platform}-${arch}${libc ? ` (${libc})` : ''}`;

/** Where the package has the addon for a platform, if it has one; `root` is the package's folder. */
export function prebuiltFile({ platform, arch, libc }: Platform, root = PACKAGE_ROOT): string {
  const name = `kintsugi-ps.napi${libc ? `.${libc}` : ''}.node`;
  return join(root, 'prebuilds', `${platform}-${arch}`, name);
}

/** The file that is loaded, whether or not it can be. */
export function addonFile(root = PACKAGE_ROOT): AddonFile {
  const named = process.env.KINTSUGI_ADDON;
  if (named) return { path: named, origin: 'named' };
  const compiled = join(root, 'build/Release/kintsugi.node');
  if (existsSync(compiled)) return { path: compiled, origin: 'compiled' };
  return { path: prebuiltFile(currentPlatform(), root), origin: 'prebuilt' };
}

/** One sentence for people whose addon did not load, with the command to run. */
export function addonAdvice({ path, origin }: AddonFile): string {
  const build = `node ${join(PACKAGE_ROOT, 'native/build.mjs')}`;
  if (origin === 'named') return 'KINTSUGI_ADDON names it: unset that, or run "npm run build" in a checkout';
  if (existsSync(join(PACKAGE_ROOT, 'test'))) return 'run "npm run build" in this checkout';
  if (origin === 'compiled') return `compile it again: ${build}`;
  const why = existsSync(path) ? 'it does not fit this system' : 'the package has none for this system';
  const system = platformText(currentPlatform());
  return `${why}, ${system}; compile it: npm install node-gyp node-addon-api && ${build}`;
}
