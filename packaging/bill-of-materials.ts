import { readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import type { Plugin } from 'rolldown';
import { packagesIn } from './bundled-packages.ts';

const FILE = 'sbom.cdx.json';

/** What package-lock.json records of a package. */
interface Locked {
  version: string;
  license?: string;
  integrity?: string;
  /** Not installed with this program. */
  dev?: boolean;
  devOptional?: boolean;
  /** Installed where it fits the platform. */
  optional?: boolean;
}

type Entry = Locked & { name: string; isBundled: boolean };

/**
 * Writes a software bill of materials (CycloneDX 1.6) beside the bundle: the packages whose code is in the bundle, and those
 * that npm installs with it. The same sources give the same file: it has neither a date nor a serial number.
 *
 * @param home the folder of this program, with its package.json and package-lock.json
 * @param scope `all` for the program; `bundled` for a part that browsers load, to which npm adds nothing
 */
export function billOfMaterials(home: string, scope: 'all' | 'bundled' = 'all'): Plugin {
  return {
    name: 'bill-of-materials',
    generateBundle(_options, bundle) {
      const { packages } = readJson<{ packages: Record<string, Locked> }>(join(home, 'package-lock.json'));
      const program = readJson<Locked & { name: string }>(join(home, 'package.json'));
      const entries = new Map<string, Entry>();
      for (const [path, locked] of Object.entries(packages)) {
        if (path === '' || locked.dev || locked.devOptional || scope === 'bundled') continue;
        entries.set(path, { ...locked, name: nameAt(path), isBundled: false });
      }
      for (const { folder, name, version, license } of packagesIn(bundle, home)) {
        const path = relative(home, folder).replaceAll(sep, '/');
        entries.set(path, { ...packages[path], name, version, license, isBundled: true });
      }
      this.emitFile({ type: 'asset', fileName: FILE, source: `${JSON.stringify(bill(program, entries), null, 2)}\n` });
    },
  };
}

function bill(program: Locked & { name: string }, entries: ReadonlyMap<string, Entry>) {
  const root = { ...component({ ...program, isBundled: true }), type: 'application' };
  const byRef = new Map([...entries.values()].map((entry) => [purl(entry), component(entry)]));
  const components = [...byRef.values()].sort((a, b) => (a['bom-ref'] < b['bom-ref'] ? -1 : 1));
  const dependsOn = components.map((each) => each['bom-ref']);
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: { component: root },
    components,
    dependencies: [{ ref: root['bom-ref'], dependsOn }],
  };
}

function component(entry: Entry) {
  const { name, version, license, integrity, optional = false, isBundled } = entry;
  return {
    type: 'library',
    'bom-ref': purl(entry),
    name,
    version,
    scope: isBundled || !optional ? 'required' : 'optional',
    ...(integrity?.startsWith('sha512-') && {
      hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice(7), 'base64').toString('hex') }],
    }),
    ...(license && { licenses: [{ expression: license }] }),
    purl: purl(entry),
  };
}

/** The package URL, which vulnerability databases know packages by. */
function purl({ name, version }: Pick<Entry, 'name' | 'version'>): string {
  return `pkg:npm/${name.replace('@', '%40')}@${version}`;
}

const nameAt = (path: string) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
const readJson = <T>(file: string): T => JSON.parse(readFileSync(file, 'utf8'));
