import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseHostport } from '../../../src/management/resources/hostname.ts';

const code = (text: string) => {
  const result = parseHostport(text);
  return typeof result === 'string' ? result : result.code;
};

describe('parseHostport', () => {
  it.each([
    ['CAM.example.com:443', 'cam.example.com:443'],
    ['*.dev.example.com:443', '*.dev.example.com:443'],
    ['cam.example.com:0443', 'cam.example.com:443'],
  ])('brings %s into the canonical form %s', (text, normal) => {
    expect(code(text)).toBe(normal);
  });

  it.each([
    ['cam.example.com', 7104],
    ['cam.example.com:', 7104],
    [':443', 7104],
    ['cam.example.com:https', 7104],
    ['cam.example.com:44e1', 7104],
    ['cam.example.com:-1', 7104],
    ['a:b:443', 7104],
    ['a_b.example.com:443', 7104],
    ['', 7104],
    ['cam.example.com:0', 7112],
    ['cam.example.com:65536', 7112],
  ])('rejects %s with %i', (text, expected) => {
    expect(code(text)).toBe(expected);
  });

  it('accepts exactly the ports from 1 to 65535', () => {
    fc.assert(
      fc.property(fc.nat(200_000), (port) => {
        const valid = port >= 1 && port <= 65535;
        expect(code(`cam.example.com:${port}`)).toBe(valid ? `cam.example.com:${port}` : 7112);
      }),
    );
  });
});
