import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { AcmeAccountKey } from '../../src/gateway/certificates/acme/acme-account.ts';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { measured } from '../support/measured.ts';
import { unless } from '../support/requirements.ts';
import { seeded } from '../support/seeded.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type Outage, TracedDisk } from '../support/traced-disk.ts';
import { NO_TRACE, traceWrites } from '../support/write-trace.ts';
import { rounds } from './rounds.ts';

/** Every so many steps the power goes, and on how many different disks. */
const STRIDE = rounds({ short: 5, full: 1 });
const SEEDS = rounds({ short: 1, full: 3 });
const OUTAGES: Outage[] = ['kill', 'lost', 'torn'];
const WRITER = fileURLToPath(new URL('../../build/faults/gateway-writer.js', import.meta.url));

/** Output of the gateway before the power cut. */
interface Answered {
  ca: string | null;
  account: string | null;
  rows: string[];
}

it('a power cut at any step of a gateway’s writes loses nothing it had acknowledged', {
  timeout: 900_000,
  ...unless(NO_TRACE),
}, async () => {
  const dataDir = temporaryFolder();
  const calls = traceWrites([process.execPath, WRITER, dataDir]);
  const disk = new TracedDisk(dataDir);
  const answered: Answered = { ca: null, account: null, rows: [] };
  let [steps, tried] = [0, 0];
  for (const call of calls) {
    if (call.call === 'write' && call.fd === 1) note(answered, call.bytes.toString());
    if (!disk.apply(call)) continue;
    steps += 1;
    if (steps % STRIDE !== 0) continue;
    for (const outage of OUTAGES) {
      // The files are the same each time, except on a torn disk.
      for (let seed = 0; seed < (outage === 'torn' ? SEEDS : 1); seed++) {
        const context = `${outage} ${seed} at step ${steps}: ${call.call}`;
        await expectKept(disk, outage, seeded(steps * 31 + seed), answered, context);
        tried += 1;
      }
    }
  }
  expect(answered.rows).toHaveLength(12);
  measured({
    fault: 'power cut at any step of what a gateway writes (database, keys, authority)',
    tried,
    note: `${steps} steps; killed, all lost that was not synced, or torn in sectors`,
  });
});

function note(answered: Answered, line: string): void {
  const [kind, value] = JSON.parse(line) as ['ca' | 'account' | 'row', string];
  if (kind === 'row') answered.rows.push(value);
  else answered[kind] = value;
}

/** Starts the gateway on the remaining files, which must succeed, and checks all acknowledged data. */
async function expectKept(
  disk: TracedDisk,
  outage: Outage,
  random: () => number,
  answered: Answered,
  context: string,
): Promise<void> {
  const dataDir = temporaryFolder();
  try {
    mkdirSync(join(dataDir, 'gateway'));
    disk.restore(outage, dataDir, random);
    const ca = await openLocalCa(join(dataDir, 'gateway'), silentLog);
    const store = openGatewayStore({ dataDir, encryptionKey: null });
    expect(store.database.problems(), context).toEqual([]);
    const rows = new Set(store.database.all<{ id: string }>('SELECT id FROM api_keys').map(({ id }) => id));
    expect(
      answered.rows.filter((id) => !rows.has(id)),
      context,
    ).toEqual([]);
    if (answered.ca !== null) expect(ca.caPem, context).toBe(answered.ca);
    const account = await new AcmeAccountKey(join(dataDir, 'gateway', 'acme-account.key'), store.box).load();
    if (answered.account !== null) expect(account, context).toBe(answered.account);
    store.database.close();
  } catch (error) {
    throw new Error(context, { cause: error });
  } finally {
  }
}
