import type { Command } from 'commander';
import type { StoreLocation } from '../gateway/store/open-gateway-store.ts';
import type { Store } from '../gateway/store/store.ts';

/** What the command needs from the rest of the program. */
export interface GatewayCommandDependencies {
  /** Runs the gateway until a signal stops it. */
  run: () => Promise<void>;
  /** Location of the gateway's store; read only when a subcommand runs. */
  location: () => StoreLocation;
}

/** Adds `device-agent gateway` and its subcommands, which work on this machine's gateway whether it runs or not. */
export function addGatewayCommand(program: Command, { run, location }: GatewayCommandDependencies): void {
  const gateway = program
    .command('gateway')
    .description('Run a standalone gateway')
    .allowExcessArguments()
    .action(async (_options, { args: [unknown] }: Command) => {
      if (unknown !== undefined) gateway.error(`error: unknown command '${unknown}'`);
      await run();
    });
  gateway
    .command('backup')
    .description('Back up the gateway’s database to a new file; works while the gateway runs')
    .argument('<file>', 'file to write; must not exist yet')
    .action((file: string) => backUp(location(), file));
  gateway
    .command('health')
    .description('Check that the gateway on this machine is alive, for containers and scripts')
    .action(async () => (await import('./gateway-health.ts')).gatewayHealth());
  gateway
    .command('certificates')
    .description('Show the status of automatic certificates; works while the gateway runs')
    .action(() => withStore(location(), listCertificates));
  gateway
    .command('api-key')
    .description('Manage API keys of the management API')
    .command('create')
    .description('Create an API key and print it once')
    .option('-d, --description <text>', 'What the key is for', '')
    .action(({ description }: { description: string }) => {
      const place = location();
      return withStore(place, (store) => createApiKey(store, description, place.dataDir));
    });
}

/**
 * Opens the store of a gateway that was started before: in the wrong folder, a command must not create another one. The
 * database's code is loaded only here: most commands never need it.
 */
async function withStore(location: StoreLocation, work: (store: Store) => Promise<void> | void): Promise<void> {
  const { expectGateway, openGatewayStore } = await import('../gateway/store/open-gateway-store.ts');
  expectGateway(location);
  const store = openGatewayStore(location, 'refuse');
  try {
    await work(store);
  } finally {
    store.database.close();
  }
}

async function listCertificates(store: Store): Promise<void> {
  (await import('./gateway-certificates.ts')).listCertificates(store);
}

/** Creates an API key and prints it; also the first one. */
async function createApiKey(store: Store, description: string, dataDir: string): Promise<void> {
  const { issueApiKey } = await import('../gateway/store/issue-token.ts');
  const { row, token } = await store.database.write(() => issueApiKey(store, { description }));
  // The key alone goes to standard output, for `export MANAGEMENT_API_KEY=$(…)`.
  process.stderr.write(`API key ${row.id} of the gateway in ${dataDir}, shown only once:\n`);
  process.stdout.write(`${token}\n`);
}

/** Copies the gateway's database to a new file. */
async function backUp(location: StoreLocation, file: string): Promise<void> {
  const { openGatewayDatabase } = await import('../gateway/store/open-gateway-store.ts');
  const database = openGatewayDatabase(location);
  try {
    database.backup(file);
  } finally {
    database.close();
  }
  process.stderr.write(`${file}: backup written; keep the encryption key of its private keys in another place\n`);
}
