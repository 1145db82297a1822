import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { hasErrno } from '../lib/errors.ts';
import { Release, SignedRelease } from './release.ts';
import { compareVersions } from './version-order.ts';

/** A release that the gateway's operator has approved for devices. */
export interface MirroredRelease {
  readonly release: Release;
  /** Folder with its files. */
  readonly folder: string;
  /** The signed manifest, as devices get it. */
  readonly manifest: string;
}

/** In the folder of each version; it comes last, and approves it. */
export const MANIFEST = 'manifest.json';

/** The folder of the releases, in the gateway's data folder. */
export const releasesIn = (dataDir: string): string => join(dataDir, 'gateway', 'releases');

/**
 * The approved releases, newest first. Devices check the signatures, so somebody who can write this folder can offer nothing else.
 *
 * @param dataDir the program's data folder
 */
export function mirroredReleases(dataDir: string): MirroredRelease[] {
  const folder = releasesIn(dataDir);
  return namesIn(folder)
    .flatMap((name) => releaseAt(join(folder, name)) ?? [])
    .sort((one, other) => compareVersions(other.release.version, one.release.version));
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return [];
    throw error;
  }
}

function releaseAt(folder: string): MirroredRelease | null {
  try {
    const manifest = readFileSync(join(folder, MANIFEST), 'utf8');
    const { payload } = SignedRelease.parse(JSON.parse(manifest));
    return { release: Release.parse(JSON.parse(Buffer.from(payload, 'base64').toString())), folder, manifest };
  } catch (error) {
    // Not approved yet, or no folder of a release.
    if (hasErrno(error, 'ENOENT') || hasErrno(error, 'ENOTDIR')) return null;
    throw error;
  }
}

/** The manifest that devices ask for by this name; null: there is none. */
export function manifestNamed(name: string, releases: readonly MirroredRelease[]): string | null {
  const [, version] = /^manifest-(\d.*)\.json$/.exec(name) ?? [];
  const channel = CHANNEL_MANIFESTS.get(name);
  const found = releases.find(({ release }) => release.version === version || release.channel === channel);
  return found?.manifest ?? null;
}

const CHANNEL_MANIFESTS: ReadonlyMap<string, string> = new Map([
  ['manifest.json', 'stable'],
  ['manifest-beta.json', 'beta'],
]);

/** The path and size of a file of an approved release; null: there is none of this name. */
export function fileNamed(name: string, releases: readonly MirroredRelease[]): { path: string; size: number } | null {
  for (const { release, folder } of releases) {
    const file = release.files.find((each) => each.name === name);
    if (file !== undefined) return { path: join(folder, name), size: file.size };
  }
  return null;
}

/** Names of files that are missing, or are not whole. */
export function missingFiles({ release, folder }: MirroredRelease): string[] {
  return release.files
    .filter(({ name, size }) => statSync(join(folder, name), { throwIfNoEntry: false })?.size !== size)
    .map(({ name }) => name);
}

/** The releases that devices can install from here, the newest first, each with the first file that is missing or not whole. */
export function offeredReleases(dataDir: string): { version: string; expires: string; missing: string | null }[] {
  return mirroredReleases(dataDir).map((mirrored) => {
    const { version, expires } = mirrored.release;
    return { version, expires, missing: missingFiles(mirrored)[0] ?? null };
  });
}
