import { createPrivateKey } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { AcmeAccountKey, type KeySeal } from '../../../../src/gateway/certificates/acme/acme-account.ts';
import { makePrivateKey } from '../../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { madeUpRsa, pemOf } from '../../../support/costly-keys.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

/** Opens only what it sealed itself, for the same owner. */
const box: KeySeal = {
  seal: (plain, owner) => Buffer.from(`sealed for ${owner}:${plain}`),
  open: (sealed, owner) => {
    const prefix = `sealed for ${owner}:`;
    if (!sealed.toString().startsWith(prefix)) throw new Error('another encryption key');
    return sealed.toString().slice(prefix.length);
  },
};

describe('the account key', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = temporaryFolder();
    file = join(folder, 'account');
  });

  it('is created once for all callers, and read again', async () => {
    const keys = new AcmeAccountKey(file, box);
    const [first, second] = await Promise.all([keys.load(), keys.load()]);
    expect(second).toBe(first);
    expect(createPrivateKey(first).asymmetricKeyDetails).toEqual({ namedCurve: 'prime256v1' });
    await expect(new AcmeAccountKey(file, box).load()).resolves.toBe(first);
    expect(readdirSync(folder)).toEqual(['account']);
  });

  it('is never replaced when unreadable, but refused with advice', async () => {
    writeFileSync(file, 'of another machine');
    const keys = new AcmeAccountKey(file, box);
    await expect(keys.load()).rejects.toThrow(`${file} is damaged or encrypted with another key`);
    await expect(keys.load()).rejects.toThrow('restore it from a backup, or remove it');
    expect(readFileSync(file, 'utf8')).toBe('of another machine');
    // The operator puts the right file back; no restart is needed.
    const key = await makePrivateKey('ecdsa');
    writeFileSync(file, box.seal(key, 'acme-account').toString('base64'));
    await expect(keys.load()).resolves.toBe(key);
  });

  it('is one for all gateways of a shared database: the first one to order a certificate has it', async () => {
    const facts = new Map<string, string>();
    const shared = {
      fact: (name: string) => facts.get(name) ?? null,
      setFact: (name: string, value: string) => void facts.set(name, value),
      write: async <T>(work: () => T) => work(),
    };
    // It has had an account before the database was shared.
    const before = await new AcmeAccountKey(file, box).load();
    await expect(new AcmeAccountKey(file, box, shared).load()).resolves.toBe(before);
    const other = join(folder, 'of-another-gateway');
    await new AcmeAccountKey(other, box).load();
    await expect(new AcmeAccountKey(other, box, shared).load()).resolves.toBe(before);
    const third = join(folder, 'of-a-new-gateway');
    await expect(new AcmeAccountKey(third, box, shared).load()).resolves.toBe(before);
    await expect(new AcmeAccountKey(third, box).load()).resolves.toBe(before);
    expect([...facts.values()].join()).not.toContain(before);
  });

  it('is the one that another gateway has changed meanwhile', async () => {
    const facts = new Map<string, string>();
    const shared = {
      fact: (name: string) => facts.get(name) ?? null,
      setFact: (name: string, value: string) => void facts.set(name, value),
      write: async <T>(work: () => T) => work(),
    };
    const keys = new AcmeAccountKey(file, box, shared);
    const before = await keys.load();
    const others = new AcmeAccountKey(join(folder, 'of-another-gateway'), box, shared);
    await expect(others.load()).resolves.toBe(before);
    const next = await makePrivateKey('ecdsa');
    await others.replace(next);
    await expect(keys.load()).resolves.toBe(next);
    await expect(new AcmeAccountKey(file, box).load()).resolves.toBe(next);
  });

  it('is refused with advice when signing with it would take long', async () => {
    writeFileSync(file, box.seal(pemOf(madeUpRsa(16_384)), 'acme-account').toString('base64'));
    const refused = `the key in ${file} is an RSA key with 16384 bits; use RSA with 2048 to 4096 bits`;
    await expect(new AcmeAccountKey(file, box).load()).rejects.toThrow(refused);
  });
});
