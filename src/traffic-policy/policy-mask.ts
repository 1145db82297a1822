import { maskUrl } from '../lib/masking/mask-url.ts';
import { isEmptyValue, isSecretHeader, isSecretMember, isSecretParameter, MASK } from '../lib/masking/secret-names.ts';
import { endOfString } from './cel/syntax.ts';
import { templateParts } from './templates.ts';

/** Stands for a secret that another one has replaced. */
const CHANGED = '[masked, changed]';

/** Characters for private use: around the number of a secret, and around that of an expression. */
const [SECRET, SECRET_END, EXPRESSION, EXPRESSION_END] = ['\ue000', '\ue001', '\ue002', '\ue003'];
const PRIVATE_USE = /[\ue000-\ue003]/g;
const SECRET_PLACE = new RegExp(`${SECRET}\\d+${SECRET_END}`, 'g');
const EXPRESSION_PLACE = new RegExp(`${EXPRESSION}(\\d+)${EXPRESSION_END}`, 'g');
const ONLY_EXPRESSIONS = new RegExp(`^(?:${EXPRESSION}\\d+${EXPRESSION_END}|[:\\s])*$`);

/** What a vault has is no part of the policy: its name and that of the secret are all that is shown. */
const OF_VAULT = /secrets\.get\(\s*(?:'[^'\\]*'|"[^"\\]*")\s*,\s*(?:'[^'\\]*'|"[^"\\]*")\s*\)/g;

const USER = /(\/\/)([^/?#\s@"'<>]+)@/g;
const QUERY = /([?&][^=&#\s"'<>]{1,200}=)([^&#\s"'<>]+)/g;
const UUID = /(?<![\w-])[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}(?![\w-])/gi;
/** Long words of letters in both cases and digits, such as base64 has. */
const LONG = /(?<![\w+/=-])[\w+/-]{24,}={0,2}/g;
const LONG_IN_PATH = /(?<![\w-])[\w-]{24,}/g;
/** Letters with digits among them, such as hexadecimal numbers. */
const MIXED = /(?<![A-Za-z\d])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{16,}/g;
/** Most names and values: too short for what the form of a secret shows. */
const HARMLESS = /^[\w.,*-]{0,14}$/;
const SHORTEST_RANDOM = 16;
/** Ids of this gateway's resources, which are no secrets. */
const ID = /^[a-z]{2,6}_[\dA-Za-z]{27}$/;
const SCHEME = /^\s*(?:Bearer|Basic|Token|ApiKey|Digest)(?:\s+|$)/i;
const WORD = /[A-Za-z_][\w-]*/g;
const NUMBER = /(?<![\w.])\d{4,}(?![\w.])/g;

type Members = Readonly<Record<string, unknown>>;

/** Where a value is: its name, the one around it, and the type of the action that has it. */
interface Place {
  readonly name: string;
  readonly parent: string;
  readonly action: string;
  readonly isSecret: boolean;
}

/**
 * Masks what may be a secret in policies: what is named like one, looks like one, or is compared with one. In doubt, it is masked.
 * Equal secrets have equal places in all values of one instance until {@link PolicyMask.shown}, so that lines can be compared.
 */
export class PolicyMask {
  readonly #numbers = new Map<string, number>();

  masked(policy: unknown): unknown {
    return this.#value(policy, { name: '', parent: '', action: '', isSecret: false });
  }

  /** A line as people see it. @param isChanged whether there is an equal line with other secrets */
  shown(line: string, isChanged: boolean): string {
    return line.includes(SECRET) ? line.replace(SECRET_PLACE, isChanged ? CHANGED : MASK) : line;
  }

  #value(value: unknown, place: Place): unknown {
    if (Array.isArray(value)) return value.map((item: unknown) => this.#value(item, place));
    if (typeof value === 'object' && value !== null) return this.#members(value as Members, place);
    if (typeof value === 'string') return this.#text(value.replace(PRIVATE_USE, '\ufffd'), place);
    return place.isSecret && value !== null && typeof value !== 'boolean' ? this.#secret(String(value)) : value;
  }

  #members(members: Members, { name: parent, action: outer, isSecret }: Place): Members {
    const { type, config } = members;
    const action = typeof type === 'string' && config !== undefined ? type : outer;
    const named = [members.name, members.key, members.header].find((name) => typeof name === 'string');
    const isOfSecret = named !== undefined && isSecretName(String(named), parent);
    return Object.fromEntries(
      Object.entries(members).map(([name, member]) => {
        const isSecretHere =
          isSecret ||
          (isSecretName(name, parent) && !(action === 'jwt-validation' && name === 'tokens')) ||
          (isOfSecret && /^(?:values?|body)$/.test(name)) ||
          (action === 'http-request' && name === 'body');
        const key = this.#plain(name.replace(PRIVATE_USE, '\ufffd'));
        return [key, this.#value(member, { name, parent, action, isSecret: isSecretHere })];
      }),
    );
  }

  #text(text: string, { name, action, isSecret }: Place): string {
    if (/^expressions?$|_condition$/.test(name)) return this.#expression(text, isSecret);
    let parts: ReturnType<typeof templateParts>;
    try {
      parts = templateParts(text);
    } catch {
      return this.#secret(text);
    }
    const expressions: string[] = [];
    const literal = parts.map((part) => {
      if (typeof part === 'string') return part;
      expressions.push(`\${${this.#expression(part.expression, isSecret)}}`);
      return `${EXPRESSION}${expressions.length - 1}${EXPRESSION_END}`;
    });
    const masked = this.#literal(literal.join(''), { isSecret, isCredentials: action === 'basic-auth' });
    return masked.replace(EXPRESSION_PLACE, (_, number) => expressions[Number(number)] ?? '');
  }

  /** A text whose expressions are places. */
  #literal(text: string, { isSecret, isCredentials }: { isSecret: boolean; isCredentials: boolean }): string {
    if (!isSecret) return this.#plain(text);
    const colon = text.indexOf(':');
    if (isCredentials && colon !== -1)
      return this.#plain(text.slice(0, colon + 1)) + this.#hidden(text.slice(colon + 1));
    return this.#hidden(text);
  }

  /** Expressions and the scheme of a credential are all that is left. */
  #hidden(text: string): string {
    if (isEmptyValue('', text)) return text;
    const scheme = SCHEME.exec(text)?.[0] ?? '';
    const parts = text.slice(scheme.length).split(new RegExp(`(${EXPRESSION_PLACE.source.replace(/[()]/g, '')})`));
    return scheme + parts.map((part) => (ONLY_EXPRESSIONS.test(part) ? part : this.#secret(part))).join('');
  }

  /** A text that is no secret by its name, without those that are in it. */
  #plain(text: string): string {
    if (HARMLESS.test(text)) return text;
    let masked = maskUrl(text).replaceAll(MASK, () => this.#secret(text));
    masked = masked.replace(USER, (all, slashes, user) =>
      ONLY_EXPRESSIONS.test(user) ? all : `${slashes}${this.#secret(user)}@`,
    );
    if (masked.includes('://'))
      masked = masked.replace(QUERY, (all, name, value) =>
        ONLY_EXPRESSIONS.test(value) || /^\$\d$/.test(value) ? all : name + this.#secret(value),
      );
    return this.#withoutRandom(masked);
  }

  #withoutRandom(text: string): string {
    if (text.length < SHORTEST_RANDOM) return text;
    const long = (word: string) => (isRandom(word) ? this.#secret(word) : word);
    return text
      .replace(UUID, (found) => this.#secret(found))
      .replace(LONG, (word) => (word.startsWith('/') ? word.replace(LONG_IN_PATH, long) : long(word)))
      .replace(MIXED, (word, at: number, all: string) => (isInId(all, at, word) ? word : this.#secret(word)));
  }

  /** CEL: texts in it are secrets if it is about something that is named like one. */
  #expression(text: string, isSecret: boolean): string {
    const vaults: string[] = [];
    const source = text.replace(OF_VAULT, (found) => {
      vaults.push(found);
      return `${EXPRESSION}${vaults.length - 1}${EXPRESSION_END}`;
    });
    const isAboutSecret = isSecret || [...source.matchAll(WORD)].some(([word]) => isSecretWord(word));
    const code = (part: string) => (isAboutSecret ? part.replace(NUMBER, (number) => this.#secret(number)) : part);
    let [masked, from] = ['', 0];
    for (let at = 0; at < source.length; at++) {
      const mark = source.charAt(at);
      if (mark !== '"' && mark !== "'") continue;
      const end = endOfString(source, at);
      const [quotes = mark] = /^("""|'''|.)/s.exec(source.slice(at)) ?? [];
      const content = source.slice(at + quotes.length, Math.max(at + quotes.length, end - quotes.length));
      const isName = isSecretWord(content) || (source.charAt(at - 1) === '[' && source.charAt(end) === ']');
      const isHidden =
        isAboutSecret && !isName && content.trim() !== '' && !/^\s*(?:Bearer|Basic|Token)\s*$/i.test(content);
      masked +=
        code(source.slice(from, at)) + quotes + (isHidden ? this.#secret(content) : this.#plain(content)) + quotes;
      [at, from] = [end - 1, end];
    }
    masked += code(source.slice(from));
    return masked.replace(EXPRESSION_PLACE, (_, number) => vaults[Number(number)] ?? '');
  }

  #secret(text: string): string {
    const number = this.#numbers.get(text) ?? this.#numbers.size;
    this.#numbers.set(text, number);
    return `${SECRET}${number}${SECRET_END}`;
  }
}

function isSecretName(name: string, parent: string): boolean {
  if (isSecretMember(name) || isSecretHeader(name)) return true;
  return /quer|param/.test(parent) && isSecretParameter(name);
}

/** Whether an expression with this word, or with a text that is this word, is about a secret. */
function isSecretWord(word: string): boolean {
  return /^[\w-]+$/.test(word) && (isSecretMember(word) || isSecretHeader(word));
}

function isRandom(word: string): boolean {
  return !ID.test(word) && /[a-z]/.test(word) && /[A-Z]/.test(word) && /\d/.test(word);
}

function isInId(text: string, at: number, word: string): boolean {
  const [prefix = ''] = /(?<![A-Za-z\d_-])[a-z]{2,6}_$/.exec(text.slice(Math.max(0, at - 8), at)) ?? [];
  return ID.test(prefix + word);
}
