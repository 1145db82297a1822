import { OperatorError } from '../lib/errors.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, installedUnit } from '../service/service.ts';
import { loadUpdateSettings } from '../settings/update-settings.ts';
import type { Channel } from '../update/release.ts';
import type { Outcome } from '../update/update-records.ts';
import { type Available, continueUpdate, Updater, type Wanted } from '../update/updater.ts';
import { VERSION_PATTERN } from '../update/version-order.ts';
import { note, print, show } from './output.ts';
import { servicePlace } from './settings-place.ts';

interface UpdateOptions {
  check?: boolean;
  to?: string;
  channel: Channel;
  from?: string;
  json?: boolean;
  /** Of the unit that looks for updates. */
  automatic?: boolean;
  /** Of the unit that tries a version. */
  continue?: boolean;
}

/** Looks for a release, and installs it unless only a check was asked for. The exit code is 1 when the device went back. */
export async function update(options: UpdateOptions): Promise<void> {
  requireRoot();
  if (options.continue) return continueUpdate(thisHost(), print);
  if (options.to !== undefined && !VERSION_PATTERN.test(options.to)) {
    throw new OperatorError(`no version: ${options.to}; give one such as 1.2.3`, 2);
  }
  const isAgentHere = installedUnit(AGENT_SERVICE, thisHost().root) !== null;
  const { env, folder } = servicePlace(isAgentHere ? AGENT_SERVICE : GATEWAY_SERVICE);
  const settings = loadUpdateSettings(env, folder);
  const automatic = options.automatic && settings.automatic !== 'off' ? settings.automatic : null;
  if (options.automatic && automatic === null) return;
  const wanted: Wanted = {
    ...{ channel: options.channel, to: options.to ?? null, from: options.from ?? settings.from },
    ...{ automatic, proxies: settings.proxies },
  };
  const updater = new Updater(thisProgram(), thisHost());
  const found = await updater.find(wanted);
  if (options.check || found.settled !== null) return showFound(found, await updater.last(), options);
  const tell = options.json ? note : print;
  await updater.begin(found, wanted, tell);
  tell(
    `trying version ${found.release.version}; it goes back to ${found.installed} if it does not work within 2 minutes`,
  );
  const outcome = await updater.end();
  show(outcome, options, renderOutcome);
  if (outcome.result !== 'confirmed') process.exitCode = 1;
}

function showFound({ installed, release, settled }: Available, last: Outcome | null, options: UpdateOptions): void {
  const { version, released, security } = release;
  show(
    { installed, newest: version, released, security, update: settled === null, reason: settled, last },
    options,
    (shown) =>
      [
        shown.reason ??
          `version ${shown.newest} is available, ${shown.installed} is installed; install it with: ${installCommand(options)}`,
        ...(shown.last && shown.last.result !== 'confirmed' ? [`the last update: ${renderOutcome(shown.last)}`] : []),
      ].join('\n'),
  );
}

function installCommand({ to, from, channel }: UpdateOptions): string {
  const chosen = [
    ...(to === undefined ? [] : ['--to', to]),
    ...(channel === 'stable' ? [] : ['--channel', channel]),
    ...(from === undefined ? [] : ['--from', from]),
  ];
  return rootCommand(['update', ...chosen].join(' '));
}

function renderOutcome({ result, from, to, reason }: Outcome): string {
  if (result === 'kept') return `version ${to} was given up: ${reason}`;
  return result === 'confirmed' ? `updated from ${from} to ${to}` : `went back from ${to} to ${from}: ${reason}`;
}
