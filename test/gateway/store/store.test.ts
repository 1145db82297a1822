import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AuthtokenAcl } from '../../../src/gateway/access/authtoken-acl.ts';
import { credentialOf } from '../../../src/gateway/access/authtoken-authentication.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { issueEmbeddedAuthtoken } from '../../../src/gateway/store/tokens.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

let dataDir: string;
let store: Store;
beforeEach(() => {
  dataDir = temporaryFolder();
  store = openGatewayStore({ dataDir, encryptionKey: null });
});
afterEach(() => {
  store.database.close();
});
function reopen(): void {
  store.database.close();
  store = openGatewayStore({ dataDir, encryptionKey: null });
}
const DOMAINS = { baseDomain: 'gw.test', cnameZone: 'c.gw.test', acmeZone: 'a.gw.test' };

it('ids keep growing after a restart with the clock set back', async () => {
  store.database.close();
  const tomorrow = Date.now() + 86_400_000;
  const open = (now: number) => openStore(join(dataDir, 'clock.db'), new SecretsBox(Buffer.alloc(32)), () => now);
  store = open(tomorrow);
  const id = store.ids.next('bot');
  await store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: '', active: true }));
  store.database.close();
  store = open(tomorrow - 7 * 86_400_000);
  expect(store.ids.next('bot') > id).toBe(true);
});

it('the account stays the same, so that DNS records keep their targets', () => {
  const { account } = store;
  expect(account).toMatch(/^[0-9a-f]{32}$/);
  reopen();
  expect(store.account).toBe(account);
});

describe('the encryption key', () => {
  const keyFile = () => join(dataDir, 'gateway', 'encryption.key');

  it('is created once, readable only by its owner', () => {
    const key = readFileSync(keyFile(), 'utf8');
    expect(statSync(keyFile()).mode & 0o777).toBe(0o600);
    reopen();
    expect(readFileSync(keyFile(), 'utf8')).toBe(key);
  });

  it('that is damaged is refused with its name', () => {
    writeFileSync(keyFile(), 'short');
    expect(() => openGatewayStore({ dataDir, encryptionKey: null })).toThrow(
      /encryption\.key does not contain an encryption key/,
    );
  });

  it('that is missing beside its database is never replaced', () => {
    store.database.close();
    const key = readFileSync(keyFile(), 'utf8');
    rmSync(keyFile());
    expect(() => openGatewayStore({ dataDir, encryptionKey: null })).toThrow(/encryption\.key is missing.* backup/);
    expect(existsSync(keyFile())).toBe(false);
    writeFileSync(keyFile(), key);
    reopen();
  });

  it('may come from a setting, which no error shows', () => {
    const good = Buffer.alloc(32, 7).toString('base64');
    openGatewayStore({ dataDir, encryptionKey: good }).database.close();
    const bad = () => openGatewayStore({ dataDir, encryptionKey: 'c2VjcmV0' });
    expect(bad).toThrow(/32 bytes in base64/);
    expect(bad).not.toThrow(/c2VjcmV0/);
  });
});

describe("the embedded agent's authtoken", () => {
  it('is replaced at every start and keeps its bot user', async () => {
    const first = await issueEmbeddedAuthtoken(store);
    reopen();
    const second = await issueEmbeddedAuthtoken(store);
    const access = new AuthtokenAcl(store, DOMAINS);
    expect(credentialOf(first, store)).toMatchObject({ code: 107 });
    const credential = credentialOf(second, store);
    if ('code' in credential) throw new Error(credential.text);
    expect(access.authorize(credential.id, { kind: 'hostname', hostname: 'cam.gw.test' })).toBeNull();
    expect(store.botUsers.page(null, 10)).toHaveLength(1);
    expect(store.credentials.page(null, 10)).toHaveLength(1);
  });
});
