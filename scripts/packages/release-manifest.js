// JavaScript, as scripts/build.js.
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** As in src/update/release.ts. */
const SIGNED_AS = 'device-agent release 1\n';

const USAGE = `Usage:
  node scripts/packages/release-manifest.js new-key FILE
      Write a new private key (PEM), and print its public key for packaging/publication.json.
  node scripts/packages/release-manifest.js sign FOLDER --version 1.2.3 --key FILE [--key FILE] [--channel stable|beta]
      [--days 30] [--security 1.2.2] [--keys FILE]
      Write the manifests of the files in FOLDER that have this version.
      --days: how long it proves what the newest version is; sign again before that
      --security: versions before this one have a known vulnerability
      --keys: JSON file {"number": 2, "keys": ["…"]} with the keys that are valid from now on`;

/** File names of a release: their kind, and the architecture in words of their own. */
const NAMES = [
  { kind: 'npm', pattern: /^device-agent-(.+)\.tgz$/, architectures: null },
  { kind: 'folder', pattern: /^device-agent-(.+)-linux-(arm|arm64|x64|any)\.tar\.(?:gz|xz)$/, architectures: null },
  {
    kind: 'deb',
    pattern: /^device-agent(?:-gateway)?_(.+)_(armhf|arm64|amd64|all)\.deb$/,
    architectures: new Map([
      ['armhf', 'arm'],
      ['amd64', 'x64'],
      ['all', 'any'],
    ]),
  },
];

/**
 * The files of a version in a folder, as a manifest lists them.
 *
 * @param {string} folder
 * @param {string} version
 */
export function releaseFiles(folder, version) {
  return readdirSync(folder)
    .toSorted()
    .flatMap((name) => {
      for (const { kind, pattern, architectures } of NAMES) {
        const [, found, word = 'any'] = pattern.exec(name) ?? [];
        // Debian writes a version that prepares another one with a tilde.
        if (found?.replace('~', '-') !== version) continue;
        const content = readFileSync(join(folder, name));
        const { size } = statSync(join(folder, name));
        const sha256 = createHash('sha256').update(content).digest('hex');
        return [{ kind, architecture: architectures?.get(word) ?? word, name, size, sha256 }];
      }
      return [];
    });
}

/**
 * The text of a signed manifest.
 *
 * @param {object} release
 * @param {readonly import('node:crypto').KeyObject[]} keys private ones
 * @returns {string}
 */
export function signedManifest(release, keys) {
  const payload = Buffer.from(JSON.stringify(release));
  const covered = Buffer.concat([Buffer.from(SIGNED_AS), payload]);
  const signatures = keys.map((key) => ({
    key: publicKeyText(key),
    signature: sign(null, covered, key).toString('base64'),
  }));
  return `${JSON.stringify({ payload: payload.toString('base64'), signatures })}\n`;
}

/**
 * The public key of a private one, as `packaging/publication.json` and manifests have it.
 *
 * @param {import('node:crypto').KeyObject} key
 * @returns {string} 32 bytes in base64
 */
export function publicKeyText(key) {
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64');
}

/** @param {readonly string[]} args */
function main([command, place, ...rest]) {
  if (command === 'new-key' && place !== undefined) {
    const { privateKey } = generateKeyPairSync('ed25519');
    writeFileSync(place, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600, flag: 'wx' });
    process.stdout.write(`${publicKeyText(privateKey)}\n`);
    return 0;
  }
  if (command !== 'sign' || place === undefined) {
    process.stderr.write(`${USAGE}\n`);
    return 2;
  }
  const { values } = parseArgs({
    args: rest,
    options: {
      version: { type: 'string' },
      key: { type: 'string', multiple: true },
      channel: { type: 'string', default: 'stable' },
      days: { type: 'string', default: '30' },
      security: { type: 'string' },
      keys: { type: 'string' },
    },
  });
  const { version = '', channel, days, security = null } = values;
  const keys = (values.key ?? []).map((file) => createPrivateKey(readFileSync(file)));
  const files = releaseFiles(place, version);
  if (keys.length === 0 || files.length === 0) {
    process.stderr.write(`no ${keys.length === 0 ? '--key' : `files of version ${version} in ${place}`}\n${USAGE}\n`);
    return 2;
  }
  const now = Date.now();
  const release = {
    version,
    channel,
    released: new Date(now).toISOString(),
    expires: new Date(now + Number(days) * 86_400_000).toISOString(),
    security,
    files,
    keys: values.keys ? JSON.parse(readFileSync(values.keys, 'utf8')) : { number: 0, keys: [] },
  };
  const text = signedManifest(release, keys);
  const names = [channel === 'beta' ? 'manifest-beta.json' : 'manifest.json', `manifest-${version}.json`];
  for (const name of names) writeFileSync(join(place, name), text);
  process.stdout.write(`${names.join(' and ')}: version ${version}, ${files.length} files, valid for ${days} days\n`);
  return 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2));
