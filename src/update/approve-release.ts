import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { mkdir, readdir, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { hasErrno, OperatorError } from '../lib/errors.ts';
import { writeDurably } from '../lib/files/durable-write.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { type FoundRelease, findRelease } from './find-release.ts';
import type { Channel, KeySet, Release, ReleaseFile } from './release.ts';
import { MANIFEST, mirroredReleases, releasesIn } from './release-mirror.ts';
import { download, type ReleaseSource } from './release-source.ts';
import { diskFiles } from './update-files.ts';
import { UpdateRecords } from './update-records.ts';

/** Each takes some hundred megabytes. */
const MAX_RELEASES = 10;
/** What the gateway itself needs on the disk. */
const RESERVE_BYTES = 256 * 1024 * 1024;

/** A release that is checked, and what of it is not here yet. */
export interface ReleasePlan {
  readonly dataDir: string;
  readonly source: ReleaseSource;
  readonly found: FoundRelease;
  readonly missing: readonly ReleaseFile[];
}

/**
 * Looks for a release as devices do, and compares it with what is here. Changes nothing.
 *
 * @param dataDir the gateway's data folder
 * @param given the keys that came with the program, or replace those
 * @throws {ReleaseRejected} when no trusted key has signed it, or it is not the newest one; {OperatorError} also without room
 */
export async function planRelease(
  dataDir: string,
  source: ReleaseSource,
  wanted: { channel: Channel; to: string | null },
  given: KeySet,
): Promise<ReleasePlan> {
  const found = await findRelease(source, wanted, given, await recordsIn(dataDir).history());
  const { version, files } = found.release;
  const known = mirroredReleases(dataDir).map(({ release }) => release.version);
  if (known.length >= MAX_RELEASES && !known.includes(version)) {
    throw new OperatorError(
      `${known.length} releases are here already: remove one with "${ownCommand(`gateway releases remove ${known.at(-1)}`)}"`,
    );
  }
  const missing: ReleaseFile[] = [];
  for (const file of files) {
    if ((await digestOf(join(folderOf(dataDir, version), file.name))) !== file.sha256) missing.push(file);
  }
  await requireSpace(dataDir, missing);
  return { dataDir, source: source.isFolder ? await opened(source, missing) : source, found, missing };
}

/**
 * Fetches what is missing of a release, then offers it to devices. An interrupted call can be repeated, and goes on.
 *
 * @param note records who approves it, right before devices get it
 * @param tell takes a line about each file
 * @throws {ReleaseRejected} for a file that is not the signed one; {OperatorError} when one is unavailable
 */
export async function approveRelease(
  { dataDir, source, found, missing }: ReleasePlan,
  note: (release: Release) => Promise<void>,
  tell: (line: string) => void,
): Promise<void> {
  const { release, manifest, history } = found;
  const folder = folderOf(dataDir, release.version);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await removeAbandoned(dataDir, release.version);
  for (const file of missing) {
    tell(`fetching ${file.name} (${(file.size / 1e6).toFixed(1)} MB) from ${source.shown}`);
    await download(source, file, join(folder, file.name));
    await diskFiles.sync(join(folder, file.name));
  }
  await diskFiles.syncFolder(folder);
  await recordsIn(dataDir).keepHistory(history);
  await note(release);
  await writeDurably(join(folder, MANIFEST), manifest, 0o600);
  const kept = [MANIFEST, ...release.files.map(({ name }) => name)];
  for (const name of await readdir(folder)) if (!kept.includes(name)) await rm(join(folder, name));
}

/** Stops offering a release to devices, and deletes it. @returns null: there is none */
export async function removeRelease(
  dataDir: string,
  version: string,
  note: (release: Release) => Promise<void>,
): Promise<Release | null> {
  const found = mirroredReleases(dataDir).find(({ release }) => release.version === version);
  if (found === undefined) return null;
  await note(found.release);
  await rm(join(found.folder, MANIFEST));
  await rm(found.folder, { recursive: true });
  return found.release;
}

const folderOf = (dataDir: string, version: string): string => join(releasesIn(dataDir), version);

/** What was seen, and which keys count by now. */
const recordsIn = (dataDir: string): UpdateRecords => new UpdateRecords(releasesIn(dataDir), diskFiles);

/** Folders of releases that were never approved. */
async function removeAbandoned(dataDir: string, version: string): Promise<void> {
  const folder = releasesIn(dataDir);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const isOther = entry.isDirectory() && entry.name !== version && !existsSync(join(folder, entry.name, MANIFEST));
    if (isOther) await rm(join(folder, entry.name), { recursive: true });
  }
}

/** Opens files while this process is root: the gateway's user may not be able to read, say, a USB stick. */
async function opened(source: ReleaseSource, files: readonly ReleaseFile[]): Promise<ReleaseSource> {
  const contents = new Map<string, Awaited<ReturnType<ReleaseSource['read']>>>();
  for (const { name } of files) contents.set(name, await source.read(name, 0));
  return { ...source, read: async (name, from) => contents.get(name) ?? source.read(name, from) };
}

async function requireSpace(dataDir: string, missing: readonly ReleaseFile[]): Promise<void> {
  const needed = missing.reduce((sum, { size }) => sum + size, 0);
  const { bavail, bsize } = await statfs(dataDir);
  if (needed === 0 || bavail * bsize >= needed + RESERVE_BYTES) return;
  const [needsMb, reserveMb, freeMb] = [needed, RESERVE_BYTES, bavail * bsize].map((bytes) => Math.ceil(bytes / 1e6));
  throw new OperatorError(
    `disk too full for the release: ${dataDir} needs ${needsMb} MB for it and ${reserveMb} MB for the gateway, and has ${freeMb} MB; ` +
      `free some space, or remove a release with "${ownCommand('gateway releases remove')}"`,
  );
}

async function digestOf(path: string): Promise<string | null> {
  try {
    if (!(await stat(path)).isFile()) return null;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  }
  const digest = createHash('sha256');
  await pipeline(createReadStream(path), digest);
  return digest.digest('hex');
}
