import { Argument, type Command, Option } from 'commander';
import type { RevocationReason } from '../../gateway/offline/command-store.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { VARIABLES } from '../../settings/variables.ts';
import { examples, historyOptions, parsedOption, refuseUsage } from '../command-line.ts';
import type { HistoryChoice } from '../history-text.ts';
import { withStore } from '../settings-place.ts';
import { type ShareOptions, shareOptions } from '../share-link-calls.ts';
import type { BackupOptions, RestoreOptions } from './gateway-backup.ts';
import { addFleetCommands } from './gateway-fleet.ts';
import type { LogOptions } from './gateway-log.ts';
import { addMessageCommands, many } from './gateway-message-commands.ts';
import type { AddPersonOptions } from './gateway-people.ts';
import type { MigrateOptions } from './gateway-shared.ts';
import type { EndSignInsOptions } from './gateway-sign-ins.ts';
import type { StatusPageChoice } from './gateway-status-pages.ts';

export interface GatewayCommandOptions {
  run: () => Promise<void>;
  /** Called only when a subcommand runs. */
  settings: () => GatewayServerSettings;
}

/** Adds `device-agent gateway` and its subcommands, which work on this machine's gateway whether it runs or not. */
export function addGatewayCommand(program: Command, { run, settings }: GatewayCommandOptions): void {
  const gateway = program
    .command('gateway')
    .description('Run a standalone gateway')
    .allowExcessArguments()
    .action(async (_options, { args: [unknown] }: Command) => {
      if (unknown !== undefined) refuseUsage(gateway, gateway, unknown);
      await run();
    });
  addInitCommand(gateway);
  addBackupCommands(gateway, settings);
  gateway
    .command('health')
    .description('Check that the gateway on this machine is alive, for containers and scripts')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await import('./gateway-health.ts')).gatewayHealth(options));
  addCertificateCommands(gateway, settings);
  gateway
    .command('doctor')
    .description('Diagnose settings, disk, database, CA, clock, ports, DNS and certificates of the gateway')
    .option('--from <user@host>', 'Another host that tries the public ports, asked over SSH')
    .option('--json', 'Print the findings as JSON')
    .action(async (options) => (await import('../doctor.ts')).gatewayDoctor(options));
  gateway
    .command('dashboard')
    .description('Print a link that signs one browser in to the dashboard of the running gateway')
    .option(
      '--as <email>',
      'As this person, who then stands in the audit log; needs: gateway people dashboard EMAIL allow',
    )
    .option('--json', 'Print JSON')
    .action(async (options: { as?: string; json?: boolean }) =>
      (await import('./gateway-dashboard.ts')).showDashboard(settings(), options),
    );
  addSharedDatabaseCommands(gateway, settings);
  addApiKeyCommand(gateway, settings);
  addKeysCommand(gateway, settings);
  addCaCommand(gateway, settings);
  addSignInsCommand(gateway, settings);
  addHistoryCommand(gateway, settings);
  addShareCommands(gateway, settings);
  addPeopleCommands(gateway, settings);
  addLogCommand(gateway, settings);
  addMessageCommands(gateway, settings);
  addStatusPageCommands(gateway, settings);
  addFleetCommands(gateway, settings);
}

function addInitCommand(gateway: Command): void {
  examples(
    gateway.command('init'),
    'gateway init --domain gateway.example.com',
    'gateway init --ip 203.0.113.5',
    'gateway init --domain gateway.localhost --no-service',
  )
    .description('Set up a gateway: settings, service, first API key; show and check its DNS records. Repeatable')
    .option('-d, --domain <hostname>', 'Base domain, such as gateway.example.com', (text) =>
      parsedOption(VARIABLES.GATEWAY_DOMAIN, text),
    )
    .option('--ip <address>', 'Without a domain: the public IP address, at whose ports endpoints are', (text) =>
      parsedOption(VARIABLES.GATEWAY_IP, text),
    )
    .option('--no-service', 'For a trial: settings and data in the current folder, ports 8443 and 8080')
    .option('--https-port <port>', 'Public HTTPS port (default: 443)', (text) =>
      parsedOption(VARIABLES.GATEWAY_HTTPS_PORT, text),
    )
    .option('--http-port <port>', 'Public HTTP port (default: 80)', (text) =>
      parsedOption(VARIABLES.GATEWAY_HTTP_PORT, text),
    )
    .option('--no-acme', 'Certificates of the gateway’s own CA only, none of Let’s Encrypt')
    .option('--email <address>', 'Where Let’s Encrypt sends notices', (text) =>
      parsedOption(VARIABLES.GATEWAY_ACME_EMAIL, text),
    )
    .option(
      '--database <url>',
      'Shared PostgreSQL database instead of one in the data folder (default: GATEWAY_DATABASE_URL, which other users of the machine cannot see)',
      (text) => parsedOption(VARIABLES.GATEWAY_DATABASE_URL, text),
    )
    .option(
      '--node-address <host:port>',
      'Where other gateways of the shared database reach this one’s HTTPS port',
      (text) => parsedOption(VARIABLES.GATEWAY_NODE_ADDRESS, text),
    )
    .option(
      '--address <ip...>',
      'Public addresses for the DNS records (default: those of this machine)',
      (text: string, before: string[] = []) => [...before, parsedOption(VARIABLES.GATEWAY_HOST, text)],
    )
    .option('--from <user@host>', 'Another host that tries the public ports, asked over SSH')
    .option('--notify <address>', 'Email address that is notified of problems, by the usual rules')
    .option('--smtp <url>', 'With --notify: your SMTP server, such as smtps://user@mail.example.com')
    .option('--smtp-from <address>', 'Sender of the messages (default: the user of the SMTP server, or the recipient)')
    .option('--smtp-password-file <file>', 'File with the password for the SMTP server')
    .option('--json', 'Print the result as JSON')
    .action(async (options) => (await import('./gateway-init.ts')).initGateway(options));
}

function addBackupCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-backup.ts');
  examples(
    gateway.command('backup'),
    'gateway backup gateway.tar.gz --with-key',
    'gateway backup gateway.tar.gz --list',
  )
    .description('Back up the gateway’s database, CA and settings to a new file; works while the gateway runs')
    .argument('<file>', 'file to write; must not exist yet')
    .option('--list', 'Show what an existing backup has')
    .option('--with-key', 'Add the encryption key, encrypted with a passphrase')
    .option('--passphrase-file <file>', 'File with the passphrase (default: asked on the terminal)')
    .option('--json', 'Print the result as JSON')
    .action(async (file: string, { list, ...options }: BackupOptions & { list?: boolean }) => {
      const { backUpGateway, listBackup } = await load();
      if (list) listBackup(file, options);
      else await backUpGateway(settings(), file, options);
    });
  gateway
    .command('restore')
    .description('Put a backup in place of what the stopped gateway has, which is kept')
    .argument('<file>', 'file that "gateway backup" has written')
    .option(
      '--key-file <file>',
      'File with the encryption key (default: GATEWAY_ENCRYPTION_KEY, or the key in DATA_DIR)',
    )
    .option(
      '--passphrase-file <file>',
      'File with the passphrase of a key in the backup (default: asked on the terminal)',
    )
    .option('--json', 'Print the result as JSON')
    .action(async (file: string, options: RestoreOptions) => (await load()).restoreGateway(settings(), file, options));
}

function addSharedDatabaseCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-shared.ts');
  gateway
    .command('migrate')
    .description('Move the stopped gateway’s data into an empty shared database (PostgreSQL), or back into DATA_DIR')
    .option(
      '--to <url>',
      'postgres://user:password@host/database (default: GATEWAY_DATABASE_URL, which other users of the machine cannot see); sqlite: back into DATA_DIR',
      (text) => (text === 'sqlite' ? text : parsedOption(VARIABLES.GATEWAY_DATABASE_URL, text)),
    )
    .option('--lost', 'With --to sqlite, when PostgreSQL is lost for good: what DATA_DIR has becomes the data')
    .option('--json', 'Print the result, with the settings to add, as JSON')
    .action(async (options: MigrateOptions) => (await load()).migrateGateway(settings(), options));
  const nodes = gateway
    .command('nodes')
    .description('List the gateways that serve the shared database')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listNodes(settings(), options));
  nodes
    .command('remove')
    .description('Let others serve what a gateway had, when its machine is lost')
    .argument('<id>', 'id of the lost gateway, as listed')
    .action(async (id: string) => (await load()).removeNode(settings(), id));
  gateway
    .command('drain')
    .description('Empty a gateway before an upgrade: its agents go to the others of the shared database')
    .argument('[id]', 'id of the gateway, as "gateway nodes" lists it (default: the one in this folder)')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string | undefined, options: { json?: boolean }) =>
      (await load()).drainNode(settings(), id, options),
    );
}

function addApiKeyCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const apiKey = gateway.command('api-key').description('Manage API keys of the management API');
  const load = () => import('./gateway-api-keys.ts');
  apiKey
    .command('create')
    .description('Create an API key and print it once')
    .option('-d, --description <text>', 'What the key is for', '')
    .option('--json', 'Print the key and its id as JSON')
    .action(async (options: { description: string; json?: boolean }) => {
      const { createApiKey } = await load();
      const place = settings();
      await withStore(place, (store) => createApiKey(store, options, place.dataDir));
    });
  apiKey
    .command('list')
    .description('List API keys, without their values')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => {
      const { listApiKeys } = await load();
      await withStore(settings(), (store) => listApiKeys(store, options));
    });
  apiKey
    .command('revoke')
    .description('Revoke an API key; works at once, also while the gateway runs')
    .argument('<id>', 'id of the key, ak_…, as listed')
    .action(async (id: string) => {
      const { revokeApiKey } = await load();
      await withStore(settings(), (store) => revokeApiKey(store, id));
    });
}

function addKeysCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-keys.ts');
  const keys = gateway.command('keys').description('Show and change the encryption key of the secrets in the database');
  keys
    .command('list', { isDefault: true })
    .description('List the keys that the gateway knows, without their values (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listKeys(settings(), options));
  keys
    .command('rotate')
    .description('Encrypt everything with a new key, while the gateway runs or not; repeatable when interrupted')
    .option('--json', 'Print the result as JSON')
    .action(async (options: { json?: boolean }) => (await load()).rotateKeys(settings(), options));
  keys
    .command('replace-lost')
    .description('Go on without a key that is lost for good, while the gateway is stopped')
    .option('--json', 'Print the result as JSON')
    .action(async (options: { json?: boolean }) => (await load()).replaceLost(settings(), options));
}

function addCaCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-ca.ts');
  const ca = gateway.command('ca').description('Show and change the gateway’s own certificate authority (CA)');
  ca.command('list', { isDefault: true })
    .description('List the CAs, and the devices that do not trust the next one yet (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listCas(settings(), options));
  ca.command('rotate')
    .description('Create the next CA beside the present one, which devices follow; repeatable when interrupted')
    .option('--until <time>', 'When the present CA ends, such as 2027-06-01; never: by gateway ca retire')
    .option('--json', 'Print the result as JSON')
    .action(async (options: { until?: string; json?: boolean }) => (await load()).rotateCas(settings(), options));
  ca.command('retire')
    .description('End the present CA: the next one takes its place; repeatable when interrupted')
    .option('--lose-devices', 'Also if devices do not trust the next CA: they have to join again')
    .option('--json', 'Print the result as JSON')
    .action(async (options: { loseDevices?: boolean; json?: boolean }) =>
      (await load()).retireCas(settings(), options),
    );
}

function addLogCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-log.ts');
  const log = gateway.command('log').description('Show who has changed what, and undo changes of traffic policies');
  log
    .command('list', { isDefault: true })
    .description(
      'List changes by the management API, the dashboard or commands; kept for GATEWAY_AUDIT_LOG_DAYS (the default command)',
    )
    .option('--since <time>', 'A duration such as 24h, or a time such as 2026-11-26')
    .option('--until <time>', 'The same: changes before then')
    .option('--type <type>', 'Changes of a type such as domain_created.v0, or of a kind such as domain')
    .option('--object <id>', 'Changes of one object')
    .option('--search <text>', 'Changes with this text, such as the name of a device')
    .option('--by <id>', 'Changes by one API key; gateway: by commands; device: by devices that join')
    .option('--json', 'Print JSON, with the members before and after; secrets are left out')
    .option('--export', 'Print a line of JSON for each change, as files of events have them')
    .action(async (options: LogOptions) => {
      const { showLog } = await load();
      await withStore(settings(), async (store) => showLog(store, options));
    });
  log
    .command('show')
    .description('Show what one change has changed, also in a traffic policy; secrets are masked')
    .argument('<event>', 'id of the change, evt_…, as listed')
    .option('--json', 'Print JSON')
    .action(async (id: string, options: { json?: boolean }) => {
      const { showChange } = await load();
      await withStore(settings(), async (store) => showChange(store, id, options));
    });
  log
    .command('undo')
    .description('Put a traffic policy back to what it was before a change, while the gateway runs')
    .argument('<event>', 'id of the change, evt_…, as listed')
    .option('--json', 'Print the change that this is as JSON')
    .action(async (id: string, options: { json?: boolean }) => (await load()).undoChange(settings(), id, options));
}

function addHistoryCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const history = gateway
    .command('history')
    .description('Draw what has happened at an endpoint, a device, or all endpoints, while the gateway runs')
    .argument('[of]', 'URL or hostname of an endpoint, or name or id of a device (default: all endpoints)');
  historyOptions(history).action(async (of: string | undefined, options: HistoryChoice) => {
    const { showGatewayHistory } = await import('./gateway-history.ts');
    await showGatewayHistory(settings(), of, options);
  });
}

function addShareCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-shares.ts');
  const share = gateway
    .command('share')
    .description('Make a link that lets browsers in at an endpoint, while the gateway runs')
    .argument('<url>', 'URL of the endpoint; its policy has the action gateway-share-links');
  shareOptions(share).action(async (url: string, options: ShareOptions) =>
    (await load()).shareEndpoint(settings(), url, options),
  );
  const shares = gateway.command('shares').description('Show and revoke share links, while the gateway runs');
  shares
    .command('list', { isDefault: true })
    .description('List the links, without their values (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listGatewayShares(settings(), options));
  shares
    .command('revoke')
    .description('Revoke a link, at once; browsers that have opened it are no longer let in')
    .argument('<id>', 'id of the link, sl_…, as listed')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string, options: { json?: boolean }) =>
      (await load()).revokeGatewayShare(settings(), id, options),
    );
}

function addStatusPageCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-status-pages.ts');
  const pages = gateway
    .command('status-pages')
    .description('Add, list and remove pages that say whether endpoints are up, while the gateway runs');
  pages
    .command('list', { isDefault: true })
    .description('List the pages (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listStatusPages(settings(), options));
  examples(
    pages.command('add'),
    "gateway status-pages add status.example.com --title Quarry --endpoint cam.example.com='Camera at the gate'",
  )
    .description('Add a page at a hostname of the gateway')
    .argument('<url>', 'URL or hostname of the page, which the gateway serves: below its domain, or a reserved domain')
    .requiredOption('--title <text>', 'Title of the page')
    .option('--text <text>', 'Text below the title')
    .requiredOption('--endpoint <url=title>', 'An endpoint and what the page calls it; can be repeated', many)
    .option('--json', 'Print the cloud endpoint of the page as JSON')
    .action(async (url: string, options: StatusPageChoice) => (await load()).addStatusPage(settings(), url, options));
  pages
    .command('remove')
    .description('Remove a page, at once')
    .argument('<id>', 'id of the page, ep_…, as listed')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string, options: { json?: boolean }) =>
      (await load()).removeStatusPage(settings(), id, options),
    );
}

function addSignInsCommand(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-sign-ins.ts');
  const signIns = gateway
    .command('sign-ins')
    .description('List the sessions of people who have signed in at endpoints')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => {
      const { listSignIns } = await load();
      await withStore(settings(), async (store) => listSignIns(store, options));
    });
  signIns
    .command('end')
    .description('End sign-ins at a host, or of a person at all hosts; works at once, also while the gateway runs')
    .option('--host <hostname>', 'Everyone who has signed in there')
    .option('--issuer <url>', 'With --subject: the identity provider, as the policy names it')
    .option('--subject <id>', 'The person, as actions.ngrok.oidc.identity.provider_user_id')
    .action(async (options: EndSignInsOptions) => {
      const { endGatewaySignIns } = await load();
      await withStore(settings(), (store) => endGatewaySignIns(store, options));
    });
}

function addPeopleCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const people = gateway
    .command('people')
    .description(
      'Manage the people who can sign in at tunnels, and at the dashboard; works at once, also while the gateway runs',
    );
  const load = () => import('./gateway-people.ts');
  const personCommand = (name: string, description: string) =>
    people.command(name).description(description).argument('<email>', 'email address of the person');
  personCommand('add', 'Add a person, and print the link by which they choose a password or passkey; sends nothing')
    .option('-n, --name <name>', 'Name of the person')
    .option('-g, --group <group>', 'A group that policies can let in; can be repeated', repeated)
    .option('--dashboard', 'Let them use the dashboard, where they can do all that an API key can')
    .option('--json', 'Print JSON')
    .action(async (email: string, options: AddPersonOptions) => {
      const { addGatewayPerson } = await load();
      await withStore(settings(), (store) => addGatewayPerson(store, settings(), email, options));
    });
  people
    .command('list', { isDefault: true })
    .description('List the people (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => {
      const { listPeople } = await load();
      await withStore(settings(), (store) => listPeople(store, options));
    });
  personCommand('link', 'Print a new link, for a forgotten password or a lost passkey')
    .option('--json', 'Print JSON')
    .action(async (email: string, options: { json?: boolean }) => {
      const { linkPerson } = await load();
      await withStore(settings(), (store) => linkPerson(store, settings(), email, options));
    });
  personCommand('groups', 'Set the groups of a person')
    .argument('[groups...]', 'all groups; none removes the person from all')
    .action(async (email: string, groups: string[]) => {
      const { setGroups } = await load();
      await withStore(settings(), (store) => setGroups(store, email, groups));
    });
  personCommand('dashboard', 'Let a person use the dashboard, where they can do all that an API key can, or no longer')
    .addArgument(new Argument('<right>', 'whether they may').choices(['allow', 'deny']))
    .action(async (email: string, right: 'allow' | 'deny') => {
      const { setDashboard } = await load();
      await withStore(settings(), (store) => setDashboard(store, email, right));
    });
  personCommand('endpoints', 'List the endpoints online at which a person may sign in; the gateway must run')
    .option('--json', 'Print JSON')
    .action(async (email: string, options: { json?: boolean }) => {
      const { listPersonEndpoints } = await load();
      await listPersonEndpoints(settings(), email, options);
    });
  personCommand('sign-out', 'End the sessions of a person, at all tunnels and at the dashboard').action(
    async (email: string) => {
      const { signPersonOut } = await load();
      await withStore(settings(), (store) => signPersonOut(store, settings(), email));
    },
  );
  personCommand('remove', 'Remove a person, and end their sessions').action(async (email: string) => {
    const { dismissPerson } = await load();
    await withStore(settings(), (store) => dismissPerson(store, settings(), email));
  });
}

function repeated(text: string, before: string[] = []): string[] {
  return [...before, text];
}

function addCertificateCommands(gateway: Command, settings: () => GatewayServerSettings): void {
  const load = () => import('./gateway-certificates.ts');
  const certificates = gateway.command('certificates').description('Show, replace and revoke automatic certificates');
  certificates
    .command('list', { isDefault: true })
    .description('Show the status of automatic certificates; works while the gateway runs (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listCertificates(settings(), options));
  examples(certificates.command('revoke'), "gateway certificates revoke '*.example.com'")
    .description('Replace a certificate by one with another key, then revoke it at its CA')
    .argument('<domain>', 'the name as listed')
    .addOption(
      new Option('--reason <reason>', 'Why, as its CA publishes it')
        .choices(['keyCompromise', 'superseded', 'cessationOfOperation'] satisfies RevocationReason[])
        .default('keyCompromise'),
    )
    .option('--now', 'Revoke it immediately, before a replacement is issued')
    .action(async (domain: string, options: { reason: RevocationReason; now?: boolean }) =>
      (await load()).revokeDomain(settings(), domain, options),
    );
  certificates
    .command('rotate-account')
    .description('Change the key of the account at the CA')
    .action(async () => (await load()).rotateAccount(settings()));
}
