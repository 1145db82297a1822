import { closeSync, openSync, readSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { SecretsBox } from '../../lib/secrets-box.ts';
import { fetchHere } from '../../management/fetch-here.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { apiHost } from '../endpoints/domain-names.ts';
import { issueDashboardCode } from '../store/command-access.ts';
import { encryptionKeysOf } from '../store/open-gateway-store.ts';
import { SCHEMA_VERSION } from '../store/sql/migrations.ts';

const Told = z.object({
  conditions: z.array(z.object({ id: z.string(), message: z.string(), remedy: z.string() })),
  /** Older gateways do not say these. */
  version: z.string().nullable().default(null),
  sessions: z.int().default(0),
});
export type ToldByGateway = z.infer<typeof Told>;

/**
 * Asks the gateway that runs on this machine what is wrong, and how many agents it has. Nothing is written for that, and its
 * database is not opened: its disk may be full, and its schema newer.
 *
 * @returns the status of an answer that says nothing of that
 * @throws when it does not answer
 */
export async function askGatewayHere(
  settings: GatewayServerSettings,
  deadlineMs: number,
): Promise<ToldByGateway | { status: number }> {
  const { dataDir, domain, httpsPort } = settings;
  const caPem = await readFile(join(dataDir, 'gateway', 'ca.pem'), 'utf8').catch(() => '');
  const fetch = fetchHere(settings, caPem);
  let status = 0;
  // The database would say which key is in use, if there are two.
  for (const key of encryptionKeysOf(settings)) {
    const answer = await fetch(`https://${apiHost(domain.toLowerCase())}:${httpsPort}/dashboard/conditions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code: issueDashboardCode(new SecretsBox(key), Date.now()) }),
      redirect: 'manual',
      signal: AbortSignal.timeout(deadlineMs),
    });
    const told = answer.status === 200 ? Told.safeParse(JSON.parse(await answer.text())) : null;
    if (told?.success) return told.data;
    status = answer.status;
  }
  return { status };
}

/** Where a database's header has the version of its schema: https://www.sqlite.org/fileformat2.html#user_version_number. */
const USER_VERSION_AT = 60;

/**
 * Whether a newer version has changed the schema of a gateway's database, as its file says: a gateway moves its log into the file
 * right after that.
 *
 * @param folder of the gateway
 */
export function hasNewerSchema(folder: string): boolean {
  const header = Buffer.alloc(4);
  const file = openSync(join(folder, 'gateway.db'), 'r');
  try {
    readSync(file, header, 0, header.length, USER_VERSION_AT);
  } finally {
    closeSync(file);
  }
  return header.readUInt32BE() > SCHEMA_VERSION;
}
