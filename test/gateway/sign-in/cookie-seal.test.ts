import { createHash } from 'node:crypto';
import { CompactEncrypt, compactDecrypt } from 'jose';
import { expect, it, vi } from 'vitest';
import { CookieSeal } from '../../../src/gateway/sign-in/cookie-seal.ts';

const PERIOD_MS = 30 * 86_400_000;
const NOW = 700 * PERIOD_MS + 1;
const VALUE = { subject: 'ümit', roles: ['a', 'b'] };
const keyFor = (purpose: string) => createHash('sha256').update(purpose).digest('base64url');
const keyOf = (purpose: string) => Buffer.from(keyFor(purpose), 'base64url');
const sealAt = (now = NOW, remembered = 0) => new CookieSeal<typeof VALUE>('session', keyFor, remembered, () => now);

it('makes and opens JSON Web Encryption, as other programs do', async () => {
  const sealed = sealAt().seal(VALUE, 'cam');
  const { plaintext, protectedHeader } = await compactDecrypt(sealed, keyOf('session 700 cam'));
  expect(JSON.parse(Buffer.from(plaintext).toString())).toEqual(VALUE);
  expect(protectedHeader).toEqual({ alg: 'dir', enc: 'A256GCM', kid: '700' });
  const theirs = await new CompactEncrypt(Buffer.from(JSON.stringify(VALUE)))
    .setProtectedHeader({ alg: 'dir', enc: 'A256GCM', kid: '699' })
    .encrypt(keyOf('session 699 cam'));
  expect(sealAt().open(theirs, 'cam')).toEqual(VALUE);
});

it.each([0, 10])('opens for its owner and as it was sealed, and nothing else (%i remembered)', (remembered) => {
  const seal = sealAt(NOW, remembered);
  const sealed = seal.seal(VALUE, 'cam');
  expect(seal.open(sealed, 'cam')).toEqual(VALUE);
  expect(seal.open(sealed, 'other')).toBeNull();
  const [header = '', , ...parts] = sealed.split('.');
  for (const at of parts.keys()) {
    const changed = parts.map((part, index) =>
      index === at ? `${part[0] === 'A' ? 'B' : 'A'}${part.slice(1)}` : part,
    );
    expect(seal.open(`${header}..${changed.join('.')}`, 'cam')).toBeNull();
  }
  expect(sealAt(NOW + 20 * PERIOD_MS).open(sealed, 'cam')).toBeNull();
});

it('tells by the form alone what was not sealed here', () => {
  const onDecrypt = vi.fn();
  const sealed = sealAt().seal(VALUE, 'cam');
  for (const text of ['', 'x', sealed.slice(1), sealed.slice(0, -1), `${sealed}.x`, sealed.replace('..', '.x.')])
    expect(sealAt().open(text, 'cam', onDecrypt)).toBeNull();
  expect(onDecrypt).not.toHaveBeenCalled();
  expect(sealAt().open(sealed, 'other', onDecrypt)).toBeNull();
  expect(onDecrypt).toHaveBeenCalledOnce();
});
