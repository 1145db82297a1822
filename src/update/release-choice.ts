import { rootCommand } from '../lib/process/own-command.ts';
import { type Channel, type KeySet, type Release, ReleaseRejected } from './release.ts';
import type { History } from './update-records.ts';
import { compareVersions } from './version-order.ts';

/** The keys to trust: those that a release has brought, if they are newer than the ones that came with the program. */
export function newestKeys(given: KeySet, { keys }: History): KeySet {
  return keys !== null && keys.number > given.number ? keys : given;
}

/**
 * Refuses manifests that are no longer the newest ones: a server could hide newer versions behind them.
 *
 * @param clock milliseconds since 1970, by this device
 * @param isMirror whether it comes from a mirror whose operator leaves out versions, and may take some back
 * @throws {ReleaseRejected}
 */
export function requireNewest(
  release: Release,
  channel: Channel,
  { seen }: History,
  clock: number,
  isMirror = false,
): void {
  const { version, released, expires } = release;
  if (release.channel !== channel) {
    throw new ReleaseRejected(
      `release rejected: the channel ${channel} has a release of the channel ${release.channel}`,
    );
  }
  const known = seen[channel];
  const order = known === undefined ? 1 : compareVersions(version, known.version);
  if (!isMirror && known !== undefined && (order < 0 || (order === 0 && released < known.released))) {
    throw new ReleaseRejected(
      `release rejected: the source has version ${version} of ${released}, but ${known.version} of ${known.released} was seen before; use another source`,
    );
  }
  // A clock that is behind must not make an old manifest valid.
  const now = Math.max(clock, known === undefined ? 0 : Date.parse(known.released));
  if (Date.parse(expires) > now) return;
  throw new ReleaseRejected(
    `release rejected: its manifest expired at ${expires}, and may hide newer versions; check this device's clock (${new Date(now).toISOString()}), or use another source`,
  );
}

/** What is remembered once a release was seen: it is the newest one, and its keys replace those before. */
export function withRelease(history: History, release: Release, trusted: KeySet): History {
  const { version, released, channel, keys } = release;
  const known = history.seen[channel];
  const order = known === undefined ? 1 : compareVersions(version, known.version);
  const isNewer = order > 0 || (order === 0 && released > (known?.released ?? ''));
  return {
    ...history,
    ...(isNewer && { seen: { ...history.seen, [channel]: { version, released } } }),
    ...(keys.number > trusted.number && keys.keys.length > 0 && { keys }),
  };
}

/** A release beside the installed version. */
export interface Choice {
  installed: string;
  release: Release;
  /** The version that a person has asked for; null: the newest one. */
  to: string | null;
  /** What the setting AGENT_UPDATE allows; null: a person has asked. */
  automatic: 'security' | 'stable' | null;
}

/** Why there is nothing to do; null: the release has to be installed. */
export function whySettled({ installed, release, to, automatic }: Choice, { rejected }: History): string | null {
  const { version, security } = release;
  if (version === installed) return `version ${installed} is installed`;
  if (to !== null) return null;
  if (compareVersions(version, installed) < 0) return `version ${installed} is installed, and newer than ${version}`;
  if (automatic === 'security' && (security === null || compareVersions(installed, security) >= 0)) {
    return `version ${version} has no security fix for ${installed}`;
  }
  const before = rejected.find((each) => each.version === version);
  if (before === undefined) return null;
  return `version ${version} was given up on this device: ${before.reason}; to try it again: ${rootCommand(`update --to ${version}`)}`;
}
