import { type Document, isMap, isScalar, isSeq, LineCounter, stringify } from 'yaml';
import type { z } from 'zod';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import { checkJson, JsonTextError } from '../../../lib/json-text.ts';
import { formatPath, validationMessage } from '../../../lib/validation-messages.ts';
import { admissionIn, withChosenAccess } from '../../../traffic-policy/access.ts';
import { PolicyInput, toTrafficPolicy } from '../../../traffic-policy/document.ts';
import { MAX_ALIASES, readYaml } from '../../../traffic-policy/policy-text.ts';
import type { PAGE_ROUTES, PolicyTextAnswer, PolicyTextProblem } from './page-routes.ts';

export type PolicyTextRequest = z.output<typeof PAGE_ROUTES.policy.body>;

type Path = readonly (string | number)[];

/** Reads a policy that somebody types, in JSON or YAML, and finds the places of what is wrong with it. */
export function readPolicyText({ text, protocol, format, details, access }: PolicyTextRequest): PolicyTextAnswer {
  const lines = new LineCounter();
  let document: Document.Parsed;
  try {
    document = readYaml(text, lines);
  } catch (error) {
    return refused([{ line: 1, column: 1, message: messageOf(error) }]);
  }
  if (document.errors.length > 0) return refused(syntaxProblems(text, document, lines));
  const locate = (path: Path, message: string): PolicyTextProblem => ({ ...placeOf(document, path, lines), message });
  let value: unknown;
  try {
    // An empty text is no policy yet, which is not worth an error of its own.
    value = document.contents === null ? {} : document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (error) {
    return refused([locate([], messageOf(error))]);
  }
  const parsed = PolicyInput.safeParse(value, { error: validationMessage });
  if (access !== undefined && parsed.success) {
    const { policy, password } = withChosenAccess(parsed.data, access);
    return { policy, text: write(policy, format ?? 'yaml'), problems: [], password, people: admissionIn(policy) };
  }
  const written = format === undefined ? null : write(value, format);
  const found = parsed.success
    ? [...protocolProblems(parsed.data, protocol), ...Object.entries(details ?? {})].map(([place, message]) =>
        locate(parsePlace(place), message),
      )
    : parsed.error.issues.map((issue) => {
        const path = [...issue.path, ...(issue.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : [])] as Path;
        return locate(path, `${formatPath(path) || 'policy'}: ${issue.message}`);
      });
  const problems = found.sort((a, b) => a.line - b.line || a.column - b.column);
  const policy = parsed.success && problems.length === 0 ? parsed.data : null;
  return { policy, text: written, problems, password: null, people: parsed.success ? admissionIn(parsed.data) : null };
}

function refused(problems: PolicyTextProblem[]): PolicyTextAnswer {
  return { policy: null, text: null, problems, password: null, people: null };
}

/** For text that begins as JSON does, errors of a JSON parser are clearer. */
function syntaxProblems(text: string, document: Document, lines: LineCounter): PolicyTextProblem[] {
  if (text.trimStart().startsWith('{')) {
    try {
      checkJson(text);
    } catch (error) {
      if (!(error instanceof JsonTextError)) throw error;
      const [line = 1, column = 1] = (error.place.match(/\d+/g) ?? []).map(Number);
      return [{ line, column, message: error.problem }];
    }
  }
  return document.errors.slice(0, 1).map(({ pos: [at], message }) => {
    const { line, col } = lines.linePos(at);
    return { line, column: col, message };
  });
}

/** Where the deepest part of a path is that exists in the text. */
function placeOf(document: Document, path: Path, lines: LineCounter): Pick<PolicyTextProblem, 'line' | 'column'> {
  let node: unknown = document.contents;
  let at = startOf(node) ?? 0;
  for (const part of path) {
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => String(isScalar(key) ? key.value : key) === String(part));
      if (!pair) break;
      at = startOf(pair.key) ?? at;
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(part)];
      at = startOf(node) ?? at;
    } else break;
  }
  const { line, col } = lines.linePos(at);
  return { line, column: col };
}

function startOf(node: unknown): number | null {
  const { range } = (node ?? {}) as { range?: readonly number[] | null };
  return range?.[0] ?? null;
}

/** `policy.inbound[0].actions` and `inbound[0].actions` alike. */
function parsePlace(place: string): Path {
  const parts = [...place.matchAll(/[^.[\]]+/g)].map(([part]) => (/^\d+$/.test(part) ? Number(part) : part));
  return parts[0] === 'policy' ? parts.slice(1) : parts;
}

function protocolProblems(policy: PolicyInput, protocol: PolicyTextRequest['protocol']): [string, string][] {
  try {
    toTrafficPolicy(policy, protocol);
    return [];
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return Object.entries(error.details);
  }
}

function write(value: unknown, format: 'yaml' | 'json'): string {
  return format === 'yaml' ? stringify(value, { aliasDuplicateObjects: false }) : `${JSON.stringify(value, null, 2)}\n`;
}
