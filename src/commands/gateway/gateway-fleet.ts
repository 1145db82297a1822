import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import type { BulkActionName } from '../../management/resources/bulk-action.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { countOption, duration, examples } from '../command-line.ts';
import type { BulkChoice } from './gateway-bulk.ts';
import type { LinkChoice, ListChoice } from './gateway-devices.ts';
import type { InviteChoice, InviteOptions } from './gateway-invite.ts';

const LINKS: readonly LinkChoice[] = ['metered', 'default', 'device'];

/** Adds the commands of `device-agent gateway` for sites with many devices. */
export function addFleetCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  addInviteCommands(gateway, settings);
  addDeviceCommands(gateway, settings);
  addNameCommands(gateway, settings);
  addReleaseCommands(gateway, settings);
}

function addInviteCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-invite.ts');
  examples(gateway.command('invite'), "gateway invite --site '*.sitea.example.com' --uses 50")
    .description('Invite devices to a site: print a code with which they join')
    .option(
      '-s, --site <domain>',
      "Domain of the site's devices, such as '*.site-a.example.com'; at a gateway without a domain a word (default there: devices)",
    )
    .option('-u, --uses <count>', 'How many devices can join with the code', countOption, 1)
    .addOption(
      new Option('-e, --expires <duration>', 'How long it is valid, such as 12h or 7d; or never')
        .argParser((text) => (text === 'never' ? null : duration(text)))
        .default(duration('7d'), '7d'),
    )
    .option('--approve', 'Devices wait until they are approved')
    .option('--tcp <ports>', 'TCP ports that its devices may use, such as 20000-20099', ports)
    .option('--own-names-only', 'Its devices only get names that end in their own, never camera.<site>')
    .option(
      '--internal',
      'Its devices may also bind internal endpoints, at names below <site>.internal that end in their own',
    )
    .option('-l, --label <key=value>', 'Label of its devices; can be repeated', label)
    .option('--description <text>', 'What the code is for')
    .option('--json', 'Print JSON')
    .action(async (options: InviteOptions) => (await load()).invite(settings(), options));
  const invites = gateway.command('invites').description('Show and revoke the codes with which devices join');
  invites
    .command('list', { isDefault: true })
    .description('List the codes, without their values (the default command)')
    .option('--search <text>', 'Only codes with this text in site, labels, description or metadata')
    .addOption(
      new Option('--state <state>', 'Only codes in this state').choices(['valid', 'expired', 'used_up', 'revoked']),
    )
    .option('--site <domain>', 'Only codes of this site')
    .option('--label <name=value>', 'Only codes with this label for their devices; a name alone: with any value')
    .option('--sort <order>', 'Sort by site, state, expires_at or uses; after a hyphen, in reverse')
    .option('--json', 'Print JSON')
    .action(async (options: InviteChoice) => (await load()).listInvites(settings(), options));
  invites
    .command('revoke')
    .description('Revoke a code; devices that have joined stay')
    .argument('<id>', 'id of the code, ek_…, as listed')
    .action(async (id: string) => (await load()).revokeInvite(settings(), id));
}

function addDeviceCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const devices = gateway
    .command('devices')
    .description('Show and change the devices that have joined, while the gateway runs');
  const load = () => import('./gateway-devices.ts');
  deviceFilters(devices.command('list', { isDefault: true }).description('List devices (the default command)'))
    .option('--sort <order>', 'Sort by name, site, state, last_seen_at or agent_version; after a hyphen, in reverse')
    .option('--json', 'Print JSON')
    .action(async (options: ListChoice) => (await load()).listDevices(settings(), options));
  const deviceCommand = (name: string, description: string) =>
    devices.command(name).description(description).argument('<device>', 'name or id of the device');
  const loadBulk = () => import('./gateway-bulk.ts');
  const bulkCommand = (name: BulkActionName, description: string) =>
    deviceFilters(
      devices
        .command(name)
        .description(description)
        .argument('[device...]', 'names or ids of devices; none: those that options choose'),
    )
      .option('--all', 'All devices')
      .option('--dry-run', 'Only count the devices')
      .option('--yes', 'Do it with all devices that options choose')
      .option('--json', 'Print the result as JSON')
      .action(async (names: string[], options: BulkChoice) => {
        await (await loadBulk()).changeDevices(settings(), name, names, options);
      });
  bulkCommand('approve', 'Let devices join that wait for it');
  bulkCommand('revoke', 'Disconnect devices for good; only their own authtokens end');
  bulkCommand('rotate', 'End the authtokens of devices; their agents fetch others');
  bulkCommand('delete', 'Forget devices and their authtokens; they can join again with a valid code');
  bulkCommand('restart', 'Ask the agents of devices to restart');
  bulkCommand('disconnect', 'End the sessions of devices; their agents connect again');
  bulkCommand('label', 'Change labels of devices; others stay')
    .option('--set <name=value>', 'A label that they get; can be repeated', label)
    .option('--remove <name>', 'A label that they lose; can be repeated', (name, before: string[] = []) => [
      ...before,
      name,
    ]);
  devices
    .command('cancel')
    .description('End what is being done with many devices; what is done stays')
    .argument('<id>', 'id of the bulk action, blk_…')
    .action(async (id: string) => (await loadBulk()).cancelBulkAction(settings(), id));
  deviceCommand('rename', 'Rename a device; it takes the name when `device-agent join` runs on it again')
    .argument('<name>', 'the new name')
    .action(async (device: string, name: string) => (await load()).renameDevice(settings(), device, name));
  deviceCommand('link', 'Say whether the link of a device is metered, such as a SIM card; its agent follows at once')
    .addArgument(new Argument('<link>', 'device: what AGENT_LINK on the device says').choices(LINKS))
    .action(async (device: string, link: LinkChoice) => (await load()).setLink(settings(), device, link));
  deviceCommand('release', 'Release a name directly below the site, so that other devices can get it')
    .argument('<label>', 'such as camera for camera.site-a.example.com, as listed')
    .action(async (device: string, label: string) => (await load()).releaseName(settings(), device, label));
}

/** Adds the options that choose devices. */
function deviceFilters(command: Command): Command {
  return command
    .option('--search <text>', 'Only devices with this text in name, site, labels, description, version or address')
    .addOption(
      new Option('--state <state>', 'Only devices in this state').choices([
        'online',
        'offline',
        'never',
        'pending',
        'revoked',
      ]),
    )
    .option('--site <domain>', 'Only devices of this site')
    .option('--label <name=value>', 'Only devices with this label; a name alone: with any value')
    .option('--agent-version <version>', 'Only devices whose agent has this version, or one that begins so');
}

function addNameCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-devices.ts');
  const names = gateway
    .command('names')
    .description('Show and free names that devices cannot get, because other authtokens have used them');
  names
    .command('list', { isDefault: true })
    .description('List the names (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listKeptNames(settings(), options));
  names
    .command('free')
    .description('Let devices have a name; an authtoken whose rules allow it takes it again when it binds it')
    .argument('<hostname>', 'the name as listed')
    .action(async (hostname: string) => (await load()).freeKeptName(settings(), hostname));
}

function addReleaseCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-releases.ts');
  const releases = gateway
    .command('releases')
    .description('Approve releases for devices, which update from this gateway (device-agent update --from gateway)');
  releases
    .command('list', { isDefault: true })
    .description('List the approved releases, and how devices fared with them (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listReleases(settings(), options));
  examples(releases.command('add'), 'gateway releases add', 'gateway releases add /media/usb/device-agent --to 1.2.3')
    .description('Fetch a release, check its signature, and offer it to devices; again, before its manifest expires')
    .argument('[from]', 'https URL or folder with releases (default: where this program was published)')
    .option('--to <version>', 'This version (default: the newest one)')
    .addOption(
      new Option('--channel <channel>', 'Channel of the newest release').choices(['stable', 'beta']).default('stable'),
    )
    .option('--json', 'Print the result as JSON')
    .action(async (from: string | undefined, options) => (await load()).addRelease(settings(), from, options));
  const versionCommand = (name: string, description: string) =>
    releases
      .command(name)
      .description(description)
      .argument('<version>', 'such as 1.2.3')
      .option('--json', 'Print the result as JSON');
  versionCommand('remove', 'Delete an approved release; devices that have it keep it').action(
    async (version: string, options) => (await load()).removeApproved(settings(), version, options),
  );
  versionCommand('stop', 'Have devices not install a version automatically').action(async (version: string, options) =>
    (await load()).stopUpdates(settings(), version, options),
  );
  versionCommand('resume', 'Let devices install a version again that was stopped').action(
    async (version: string, options) => (await load()).resumeUpdates(settings(), version, options),
  );
}

function ports(text: string): string {
  if (/^\d{1,5}(-\d{1,5})?$/.test(text)) return text;
  throw new InvalidArgumentError('Must be a range of ports such as 20000-20099.');
}

function label(text: string, before: Record<string, string> = {}): Record<string, string> {
  const [, key, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('Must be key=value.');
  return { ...before, [key]: value };
}
