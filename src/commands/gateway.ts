import type { Command } from 'commander';
import type { StoreLocation } from '../gateway/store/open-gateway-store.ts';
import type { Store } from '../gateway/store/store.ts';

/** What the command needs of the rest of the program. */
export interface GatewayCommandDependencies {
  /** Runs the gateway until it is told to stop. */
  run: () => Promise<void>;
  /** Where the gateway's store is; asked for only when a sub-command runs. */
  location: () => StoreLocation;
}

/** Adds `device-agent gateway` and what can be done with a gateway from its own machine, running or not. */
export function addGatewayCommand(program: Command, { run, location }: GatewayCommandDependencies): void {
  const gateway = program
    .command('gateway')
    .description('run a gateway by itself, for agents elsewhere')
    .allowExcessArguments()
    .action(async (_options, { args: [unknown] }: Command) => {
      if (unknown !== undefined) gateway.error(`error: unknown command '${unknown}'`);
      await run();
    });
  gateway
    .command('backup')
    .description('copy the database into a new file; the gateway may be running')
    .argument('<file>', 'file to write; it must not exist')
    .action((file: string) => backUp(location(), file));
  gateway
    .command('health')
    .description('whether the gateway on this machine is alive; exit code 0, or 3 when it is not')
    .action(async () => (await import('./gateway-health.ts')).gatewayHealth());
  gateway
    .command('certificates')
    .description('show how the certificates stand that are obtained automatically; the gateway may be running')
    .action(() => withStore(location(), listCertificates, 'existing'));
  gateway
    .command('api-key')
    .description('keys for the management API')
    .command('create')
    .description('make an API key and show it, once')
    .option('-d, --description <text>', 'what the key is for', '')
    .action(({ description }: { description: string }) => {
      const place = location();
      return withStore(place, (store) => createApiKey(store, description, place.dataDir));
    });
}

/**
 * Loads the database's code only now: most commands never need it.
 *
 * @param which `existing`: what only looks at a gateway makes none, in the wrong folder say
 */
async function withStore(
  location: StoreLocation,
  work: (store: Store) => Promise<void> | void,
  which: 'existing' | 'any' = 'any',
): Promise<void> {
  const { expectGateway, openGatewayStore } = await import('../gateway/store/open-gateway-store.ts');
  if (which === 'existing') expectGateway(location);
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

/** Makes an API key and prints it; this is how the first one is had, also before a gateway's first start. */
async function createApiKey(store: Store, description: string, dataDir: string): Promise<void> {
  const { issueApiKey } = await import('../gateway/access/issue-token.ts');
  const { row, token } = await store.database.write(() => issueApiKey(store, { description }));
  // The key alone goes to standard output, for `export MANAGEMENT_API_KEY=$(…)`.
  process.stderr.write(`API key ${row.id} of the gateway in ${dataDir}; it is shown this once:\n`);
  process.stdout.write(`${token}\n`);
}

/** Copies the gateway's database into a new file. */
async function backUp(location: StoreLocation, file: string): Promise<void> {
  const { openGatewayDatabase } = await import('../gateway/store/open-gateway-store.ts');
  const database = openGatewayDatabase(location);
  try {
    database.backup(file);
  } finally {
    database.close();
  }
  process.stderr.write(
    `${file} holds the database. Private keys in it open with the encryption key alone: keep that apart.\n`,
  );
}
