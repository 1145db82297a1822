import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SecretsBox } from '../../src/lib/secrets-box.ts';

const box = new SecretsBox(randomBytes(32));

it('open returns the sealed text, which the box does not contain in plain', () => {
  fc.assert(
    fc.property(fc.string({ minLength: 8 }), fc.string(), (plain, owner) => {
      const sealed = box.seal(plain, owner);
      expect(box.open(sealed, owner)).toBe(plain);
      expect(sealed.includes(plain)).toBe(false);
    }),
  );
});

it('seal returns a different box each time', () => {
  expect(box.seal('same', 'owner')).not.toEqual(box.seal('same', 'owner'));
});

it('open throws for another owner, another key or any change to the box', () => {
  const sealed = box.seal('a private key', 'cert_1');
  expect(() => box.open(sealed, 'cert_2')).toThrow(/cert_2/);
  expect(() => new SecretsBox(randomBytes(32)).open(sealed, 'cert_1')).toThrow(/encryption key/);
  for (let at = 0; at < sealed.length; at += 1) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    expect(() => box.open(changed, 'cert_1')).toThrow();
  }
  for (let length = 0; length < sealed.length; length += 1) {
    expect(() => box.open(sealed.subarray(0, length), 'cert_1')).toThrow();
  }
});
