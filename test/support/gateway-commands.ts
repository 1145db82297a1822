import { Command } from 'commander';
import { afterEach, beforeEach, vi } from 'vitest';
import { addGatewayCommand } from '../../src/commands/gateway/gateway-commands.ts';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { startTestGateway, type TestGateway } from './gateway.ts';

/** A gateway for each test of a file, and commands beside it. */
export interface GatewayCommands {
  readonly gateway: TestGateway;
  /** What the last one has printed. */
  readonly printed: string;
  /** Runs `device-agent gateway …`; returns what it prints. */
  run(...args: string[]): Promise<string>;
}

export function gatewayCommands(options: Parameters<typeof startTestGateway>[0] = {}): GatewayCommands {
  let gateway: TestGateway | null = null;
  let printed = '';
  const present = () => {
    if (gateway === null) throw new Error('there is a gateway in tests only');
    return gateway;
  };
  beforeEach(async () => {
    gateway = await startTestGateway(options);
    vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
      printed += String(text);
      return true;
    });
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await gateway?.close();
    gateway = null;
  });
  return {
    get gateway() {
      return present();
    },
    get printed() {
      return printed;
    },
    async run(...args) {
      const { dataDir, httpsPort } = present();
      const env = { DATA_DIR: dataDir, GATEWAY_HTTPS_PORT: String(httpsPort) };
      const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
      addGatewayCommand(program, { run: async () => {}, settings: () => loadGatewayServerSettings(env, dataDir) });
      printed = '';
      await program.parseAsync(['gateway', ...args], { from: 'user' });
      return printed;
    },
  };
}
