// The base images of the Dockerfile with the digests that their tags have now, as build arguments: NODE_IMAGE=node:24@sha256:…
// A release is built with them. `--write` puts them into the Dockerfile instead. Needs docker, and the registries.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const IMAGE = /^(ARG ([A-Z_]*IMAGE[A-Z_]*)=)([^@\s]+)(@\S+)?$/gm;

/** @param {string} image with a tag @returns {string} the digest of what the tag names, for all platforms */
function digestOf(image) {
  const args = ['buildx', 'imagetools', 'inspect', image, '--format', '{{.Manifest.Digest}}'];
  const digest = execFileSync('docker', args, { encoding: 'utf8' }).trim();
  if (!/^sha256:[0-9a-f]{64}$/.test(digest)) throw new Error(`${image}: docker says no digest but ${digest}`);
  return digest;
}

const text = readFileSync('Dockerfile', 'utf8');
const pinned = text.replace(IMAGE, (_, before, _name, image) => `${before}${image}@${digestOf(image)}`);
if (process.argv[2] === '--write') writeFileSync('Dockerfile', pinned);
else
  for (const [, , name, image, digest] of pinned.matchAll(IMAGE)) process.stdout.write(`${name}=${image}${digest}\n`);
