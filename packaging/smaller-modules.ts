import type { Plugin } from 'rolldown';

interface MimeType {
  charset?: string;
  extensions?: readonly string[];
}

/** Extensions by which Express names types of responses. Files of the pages have their types in `static-site.ts`. */
const EXTENSIONS = ['bin', 'html', 'json', 'txt'];

/** Modules by the end of their path, and what is left of each. */
const SMALLER: Readonly<Record<string, (code: string) => string>> = {
  // What crawlers.ts reads of the list: 80 KB of 650.
  'crawler-user-agents/crawler-user-agents.json': (code) => {
    const list: { pattern: string; tags?: string[] }[] = JSON.parse(code);
    return JSON.stringify(list.map(({ pattern, tags }) => ({ pattern, tags })));
  },
  'mime-db/db.json': (code) => {
    const types: Record<string, MimeType> = JSON.parse(code);
    return JSON.stringify(
      Object.fromEntries(
        Object.entries(types).filter(
          ([, { charset, extensions }]) =>
            charset !== undefined || EXTENSIONS.some((extension) => extensions?.includes(extension)),
        ),
      ),
    );
  },
  // The log writes its lines in its own thread.
  'pino/lib/transport.js': () => "module.exports = () => { throw new Error('pino transports are not bundled'); };",
  // Bodies are UTF-8.
  'iconv-lite/encodings/index.js': () => "module.exports = require('./internal');",
  // Queries are parsed by Express's simple parser, and no API takes forms.
  'qs/lib/index.js': () => "module.exports = require('node:querystring');",
  // Nobody pushes metrics or aggregates them, and those of the process are our own.
  'prom-client/index.js': () =>
    `const [Registry, Counter, Gauge, Histogram] =
      [require('./lib/registry'), require('./lib/counter'), require('./lib/gauge'), require('./lib/histogram')];
    module.exports = { Registry, Counter, Gauge, Histogram };`,
};

/** Leaves out what packages bring along and this project never uses: Node keeps the text of all that it runs in memory. */
export function smallerModules(): Plugin {
  return {
    name: 'smaller-modules',
    transform: {
      filter: { id: Object.keys(SMALLER).map((path) => new RegExp(`/node_modules/${path}$`)) },
      handler(code, id) {
        const smaller = Object.entries(SMALLER).find(([path]) => id.endsWith(path))?.[1];
        if (smaller === undefined) return null;
        return { code: smaller(code), moduleType: id.endsWith('.json') ? 'json' : 'js', map: { mappings: '' } };
      },
    },
  };
}

/**
 * Escapes characters beyond Latin-1: with one of them, the text of a whole file takes two bytes per character in memory.
 * They occur in texts and in regular expressions only.
 */
export function latinChunks(): Plugin {
  return {
    name: 'latin-chunks',
    generateBundle(_options, bundle) {
      const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
      for (const output of Object.values(bundle)) {
        if (output.type === 'chunk') output.code = output.code.replace(/[^\0-\xff]/g, escaped);
      }
    },
  };
}
