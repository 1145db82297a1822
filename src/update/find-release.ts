import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { PUBLISHED_UPDATES } from '../packaged.ts';
import { type Channel, KeySet, openRelease, type Release, ReleaseRejected } from './release.ts';
import { newestKeys, requireNewest, withRelease } from './release-choice.ts';
import { type ReleaseSource, readManifest } from './release-source.ts';
import type { History } from './update-records.ts';

/** Where releases are published. */
export const PUBLISHED_PLACE: string = dirname(PUBLISHED_UPDATES.manifestUrl);
/** Where an operator who publishes releases puts the keys, in place of those that came with the program. */
const KEY_FILE = '/etc/device-agent/update-keys.json';
/** The file of a channel's newest release. */
const NAMES: Readonly<Record<Channel, string>> = { stable: 'manifest.json', beta: 'manifest-beta.json' };

/** A release whose signature is good. */
export interface FoundRelease {
  release: Release;
  /** The text of its manifest. */
  manifest: string;
  /** The history with this release added. */
  history: History;
}

/**
 * Looks for a release, and checks it.
 *
 * @param source where it comes from; a mirror may leave out the newest ones
 * @param to a version; null: the newest one of the channel
 * @param given the keys that came with the program, or replace those
 * @param history what was seen before
 * @throws {ReleaseRejected} when what the source has is not a valid release
 */
export async function findRelease(
  source: ReleaseSource & { isMirror?: boolean },
  { channel, to }: { channel: Channel; to: string | null },
  given: KeySet,
  history: History,
): Promise<FoundRelease> {
  const trusted = newestKeys(given, history);
  if (trusted.keys.length === 0) {
    throw new OperatorError(
      `no update keys: this build trusts no publisher of releases; put the keys of yours in ${KEY_FILE} (docs/updates.md)`,
    );
  }
  const name = to === null ? NAMES[channel] : `manifest-${to}.json`;
  const manifest = await readManifest(source, name);
  const release = openRelease(manifest, trusted, `${name} of ${source.shown}`);
  if (to === null) requireNewest(release, channel, history, Date.now(), source.isMirror === true);
  else if (release.version !== to) {
    throw new ReleaseRejected(`release rejected: ${name} of ${source.shown} is the one of version ${release.version}`);
  }
  return { release, manifest, history: withRelease(history, release, trusted) };
}

/** The keys that came with the program, or that the operator of this machine has put in their place. */
export async function givenKeys(): Promise<KeySet> {
  const { keySet: number, publicKeys: keys } = PUBLISHED_UPDATES;
  try {
    return KeySet.parse(JSON.parse(await readFile(KEY_FILE, 'utf8')));
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { number, keys };
    throw new OperatorError(`cannot read ${KEY_FILE}: ${messageOf(error)}; docs/updates.md has its format`);
  }
}
