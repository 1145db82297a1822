// node scripts/manifests.js --write: puts the version of package.json, and the names of packaging/publication.json, into all
// manifests of this repository. Without --write, it lists those that differ, and fails if there are any.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = new URL('..', import.meta.url);

/** @param {string} path */
const read = (path) => readFileSync(new URL(path, ROOT), 'utf8');

const { version } = JSON.parse(read('package.json'));
const { apt, homepage, image, repository } = JSON.parse(read('packaging/publication.json'));

/**
 * What each manifest says: the text before a value, and the value, which ends before the next quote or white space.
 *
 * @type {[path: string, values: [before: RegExp, value: string][]][]}
 */
const MANIFESTS = [
  [
    'package.json',
    [
      [/^ {2}"homepage": "/m, homepage],
      [/^ {4}"url": "/m, `git+${repository}.git`],
    ],
  ],
  ['docs/raspberry-pi.md', [[/^curl -fsS (?=https:)/m, `${apt.url}/device-agent.sources`]]],
  [
    'packaging/helm/device-agent/Chart.yaml',
    [
      [/^version: /m, version],
      [/^appVersion: '/m, version],
      [/^home: /m, homepage],
      [/^ {2}- (?=https:)/m, repository],
    ],
  ],
  ['packaging/helm/device-agent/values.yaml', [[/^ {2}repository: /m, image]]],
  ['packaging/kubernetes/agent.yaml', [[/^ +image: /m, `${image}:${version}`]]],
  ['packaging/kubernetes/gateway.yaml', [[/^ +image: /m, `${image}:${version}`]]],
  ['packaging/home-assistant/repository.yaml', [[/^url: /m, repository]]],
  [
    'packaging/home-assistant/device-agent/config.yaml',
    [
      [/^version: '/m, version],
      [/^url: /m, homepage],
      [/^image: /m, `${image}-home-assistant`],
    ],
  ],
  ['packaging/home-assistant/device-agent/Dockerfile', [[/^ARG IMAGE=/m, `${image}:${version}`]]],
  ['packaging/balena/balena.yml', [[/^version: /m, version]]],
  ['packaging/balena/docker-compose.yml', [[/^ +image: /m, `${image}:${version}`]]],
];

/**
 * The manifests whose text is not up to date, with the text that would be.
 *
 * @returns {[path: string, text: string][]}
 * @throws Error when a manifest lacks a place
 */
export function staleManifests() {
  return MANIFESTS.map(([path, values]) => {
    const text = values.reduce((before, [place, value]) => {
      const whole = new RegExp(`(${place.source})[^'"\\s]*`, place.flags);
      if (!whole.test(before)) throw new Error(`${path} has no ${place.source}`);
      return before.replace(whole, (_, start) => `${start}${value}`);
    }, read(path));
    return /** @type {[string, string]} */ ([path, text]);
  }).filter(([path, text]) => text !== read(path));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const stale = staleManifests();
  if (process.argv.includes('--write')) for (const [path, text] of stale) writeFileSync(new URL(path, ROOT), text);
  else if (stale.length > 0) {
    process.stderr.write(`out of date: ${stale.map(([path]) => path).join(', ')}; run: npm run manifests -- --write\n`);
    process.exitCode = 1;
  }
}
