import { expectGateway, resumeVersion, stoppedVersions, stopVersion } from '../../gateway/offline/command-store.ts';

import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { loadUpdateSettings } from '../../settings/update-settings.ts';
import { approveRelease, planRelease, removeRelease } from '../../update/approve-release.ts';
import { givenKeys, PUBLISHED_PLACE } from '../../update/find-release.ts';
import type { Channel, Release } from '../../update/release.ts';
import { mirroredReleases, missingFiles } from '../../update/release-mirror.ts';
import { openSource } from '../../update/release-source.ts';
import { VERSION_PATTERN } from '../../update/version-order.ts';
import { note, print, show, table } from '../output.ts';
import { becomeGatewayOwner, gatewayPlace, withStore } from '../settings-place.ts';

type AddRequest = {
  to?: string;
  channel: Channel;
  json?: boolean;
};

/** Fetches and checks a release, and offers it to the devices of this gateway. */
export async function addRelease(
  settings: GatewayServerSettings,
  from: string | undefined,
  { to, channel, json }: AddRequest,
): Promise<void> {
  const { dataDir } = settings;
  requireData(settings);
  if (to !== undefined) requireVersion(to);
  const { env, folder } = gatewayPlace('data');
  const source = openSource(from ?? PUBLISHED_PLACE, loadUpdateSettings(env, folder).proxies);
  const plan = await planRelease(dataDir, source, { channel, to: to ?? null }, await givenKeys());
  const { version, expires } = plan.found.release;
  await becomeGatewayOwner(settings);
  await approveRelease(plan, (release) => noteRelease(settings, null, release), json ? note : print);
  show({ approved: version, expires }, { json }, () => `devices of this gateway get version ${version} from now on`);
}

/** Prints the approved releases, and what has become of the devices that have taken them. */
export async function listReleases(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  requireData(settings);
  await withStore(settings, ({ agentUpdates, database }) => {
    const stopped = new Map(stoppedVersions(database).map((each) => [each.version, each]));
    const mirrored = mirroredReleases(settings.dataDir);
    const versions = [...mirrored.map(({ release }) => release.version), ...stopped.keys()];
    const releases = [...new Set(versions)].map((version) => {
      const found = mirrored.find(({ release }) => release.version === version);
      const updates = agentUpdates.to(version);
      const count = (wanted: string | null) => updates.filter(({ result }) => result === wanted).length;
      return {
        version,
        channel: found?.release.channel ?? null,
        released: found?.release.released ?? null,
        expires: found?.release.expires ?? null,
        missing: found ? missingFiles(found) : [],
        stopped: stopped.get(version)?.reason ?? null,
        devices: { confirmed: count('confirmed'), returned: count('returned'), unknown: count(null) },
      };
    });
    show(releases, { json }, renderReleases);
  });
}

interface ShownRelease {
  version: string;
  channel: string | null;
  expires: string | null;
  missing: string[];
  stopped: string | null;
  devices: { confirmed: number; returned: number; unknown: number };
}

function renderReleases(releases: readonly ShownRelease[]): string {
  if (releases.length === 0) {
    return `No release is approved: approve one with "${ownCommand('gateway releases add')}".`;
  }
  const rows = releases.map(({ version, channel, expires, missing, stopped, devices }) => [
    version,
    channel ?? '-',
    expires?.slice(0, 'YYYY-MM-DD'.length) ?? '-',
    ...[devices.confirmed, devices.returned, devices.unknown].map(String),
    stateOf({ expires, missing, stopped }),
  ]);
  return table(['VERSION', 'CHANNEL', 'EXPIRES', 'CONFIRMED', 'WENT BACK', 'UNKNOWN', 'STATE'], rows);
}

function stateOf({ expires, missing, stopped }: Pick<ShownRelease, 'expires' | 'missing' | 'stopped'>): string {
  if (stopped !== null) return `stopped: ${stopped}`;
  if (missing.length > 0) return `incomplete: ${missing[0]} is missing here; add it again`;
  if (expires !== null && Date.parse(expires) <= Date.now()) return 'expired: add it again, or a newer one';
  return 'offered';
}

/** Deletes an approved release. @throws {OperatorError} exit code 4 when there is none */
export async function removeApproved(
  settings: GatewayServerSettings,
  version: string,
  options: { json?: boolean },
): Promise<void> {
  requireData(settings);
  await becomeGatewayOwner(settings);
  const removed = await removeRelease(settings.dataDir, version, (release) => noteRelease(settings, release, null));
  if (removed === null) throw unknownVersion(version);
  show({ removed: version }, options, () => `devices no longer get version ${version}; those that have it keep it`);
}

/** Has devices not install a version without being asked. */
export async function stopUpdates(
  settings: GatewayServerSettings,
  version: string,
  options: { json?: boolean },
): Promise<void> {
  requireVersion(version);
  await withStore(settings, ({ database, now }) =>
    database.write(() =>
      stopVersion(database, { version, reason: 'an operator has stopped it', at: now(), isDecided: true }),
    ),
  );
  show({ stopped: version }, options, () => `devices do not install version ${version} automatically any more`);
}

/** Lets devices install a version again that was stopped. @throws {OperatorError} exit code 4 when it was not */
export async function resumeUpdates(
  settings: GatewayServerSettings,
  version: string,
  options: { json?: boolean },
): Promise<void> {
  const wasStopped = await withStore(settings, ({ database, agentUpdates }) =>
    database.write(() => {
      // Those that failed would stop it at once.
      agentUpdates.forgetFailed(version);
      return resumeVersion(database, version);
    }),
  );
  if (!wasStopped)
    throw new OperatorError(`version ${version} is not stopped: see ${ownCommand('gateway releases')}`, 4);
  show({ resumed: version }, options, () => `devices install version ${version} again`);
}

function requireData(settings: GatewayServerSettings): void {
  if (settings.databaseUrl === null) expectGateway(settings);
}

function requireVersion(version: string): void {
  if (!VERSION_PATTERN.test(version)) throw new OperatorError(`no version: ${version}; give one such as 1.2.3`, 2);
}

function unknownVersion(version: string): OperatorError {
  return new OperatorError(`no approved release ${version}: ${ownCommand('gateway releases')} lists them`, 4);
}

/** Writes to the audit log what was done with a release. */
function noteRelease(settings: GatewayServerSettings, before: Release | null, after: Release | null): Promise<void> {
  const shown = (release: Release | null) =>
    release && { id: release.version, channel: release.channel, released: release.released, expires: release.expires };
  const change = { table: 'releases', before: shown(before), after: shown(after) };
  return withStore(settings, ({ database }) => database.write(() => database.noteChange(change)));
}
