import { type CelFunc, type CelInput, CelScalar, celFunc, isCelList, isCelMap, listType } from '@bufbuild/cel';
import { currentContext } from '../evaluation.ts';

const { BOOL, DYN, STRING } = CelScalar;

export const REQUEST_FUNCTIONS: readonly CelFunc[] = [
  ...lookups('ReqHeader', 'req.headers'),
  ...lookups('QueryParam', 'req.url.query_params'),
  ...cookieLookups('ReqCookie', 'req.cookies'),
];

export const RESPONSE_FUNCTIONS: readonly CelFunc[] = [
  ...lookups('ResHeader', 'res.headers'),
  ...cookieLookups('ResCookie', 'res.cookies'),
];

function lookups(subject: string, variable: string): CelFunc[] {
  return [
    has(subject, variable),
    celFunc(`get${subject}`, [STRING], listType(STRING), (name) => {
      const found = memberOf(variable, name);
      return isCelList(found) ? found : [];
    }),
  ];
}

function cookieLookups(subject: string, variable: string): CelFunc[] {
  return [
    has(subject, variable),
    celFunc(`get${subject}`, [STRING], DYN, (name) => {
      const found = memberOf(variable, name);
      const first = isCelList(found) ? found.get(0) : undefined;
      if (first === undefined) throw new Error(`unknown cookie: ${name}`);
      return first;
    }),
  ];
}

function has(subject: string, variable: string): CelFunc {
  return celFunc(`has${subject}`, [STRING], BOOL, (name) => memberOf(variable, name) !== undefined);
}

function memberOf(variable: string, name: string): CelInput | undefined {
  const map = currentContext().variables[variable];
  return isCelMap(map) ? map.get(name) : undefined;
}
