import { domainToASCII, domainToUnicode } from 'node:url';

/**
 * Whether a lower-case name has an `xn--` label that encodes nothing. A valid label decodes to text beyond ASCII, which
 * encodes to that label again. Node 20 to 24 also find this out in `domainToASCII`, Node 26 does not.
 */
export function hasInvalidPunycode(name: string): boolean {
  return name.split('.').some((label) => {
    if (!label.startsWith('xn--')) return false;
    const text = domainToUnicode(label);
    return !/[^\0-\x7f]/.test(text) || domainToASCII(text) !== label;
  });
}
