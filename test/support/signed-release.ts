import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { publicKeyText, signedManifest } from '../../scripts/packages/release-manifest.js';
import type { ReleaseFile } from '../../src/update/release.ts';

/** The key of a publisher of releases, and the file that makes an installation trust it. */
export function publisherKey(): { key: KeyObject; keySet: string } {
  const { privateKey } = generateKeyPairSync('ed25519');
  return { key: privateKey, keySet: JSON.stringify({ number: 0, keys: [publicKeyText(privateKey)] }) };
}

/** The manifest of a stable release, valid for a day. @param files one of them, or all */
export function signedRelease(version: string, files: ReleaseFile | readonly ReleaseFile[], key: KeyObject): string {
  const release = {
    ...{ version, channel: 'stable', security: null, keys: { number: 0, keys: [] }, files: [files].flat() },
    ...{ released: new Date().toISOString(), expires: new Date(Date.now() + 86_400_000).toISOString() },
  };
  return signedManifest(release, [key]);
}
