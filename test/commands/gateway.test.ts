import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { addGatewayCommand } from '../../src/commands/gateway.ts';
import { Database } from '../../src/gateway/store/database.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { secretMatches } from '../../src/gateway/store/tokens.ts';

let dataDir: string;
let printed: string;
let runs: number;
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'gateway-command-'));
  printed = '';
  runs = 0;
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(dataDir, { recursive: true });
});

function run(...args: string[]): Promise<unknown> {
  const program = new Command().exitOverride();
  addGatewayCommand(program, {
    run: async () => {
      runs += 1;
    },
    location: () => ({ dataDir, encryptionKey: null }),
  });
  return program.parseAsync(['gateway', ...args], { from: 'user' });
}

it('gateway runs the gateway', async () => {
  await run();
  expect(runs).toBe(1);
});

it('gateway api-key create prints a key that works, alone on its line, also beside a running gateway', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'create', '--description', 'laptop');
  const [, ksuid = '', secret = ''] = /^([0-9A-Za-z]{27})_([0-9A-Za-z]+)\n$/.exec(printed) ?? [];
  const row = running.apiKeys.get(`ak_${ksuid}`);
  expect(row?.description).toBe('laptop');
  expect(row && secretMatches(secret, row.secret_hash)).toBe(true);
  running.database.close();
});

it('gateway backup copies the database of a running gateway, and never overwrites', async () => {
  const running = openGatewayStore({ dataDir, encryptionKey: null });
  await run('api-key', 'create');
  const file = join(dataDir, 'copy.db');
  await run('backup', file);
  const copy = Database.open(file);
  expect(copy.problems()).toEqual([]);
  expect(copy.all('SELECT id FROM api_keys')).toHaveLength(1);
  copy.close();
  await expect(run('backup', file)).rejects.toThrow(/exists already/);
  running.database.close();
});
