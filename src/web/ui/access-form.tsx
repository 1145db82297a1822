import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { CopyButton } from './button.tsx';
import { SelectField, TextArea } from './field.tsx';
import { Notice, ProblemNotice } from './notice.tsx';
import type { Submission } from './submission.ts';

/** How a policy lets clients in, in words of people. */
const WORDS: Readonly<Record<string, string>> = {
  certificate: 'a client certificate',
  password: 'a password',
  'sign-in': 'people who sign in',
  token: 'a token',
  link: 'a link',
};

/** Whether share links let somebody in. */
export function takesLinks(ways: readonly string[]): boolean {
  return ways.includes('link') || ways.includes('or-link');
}

/** Whether only other endpoints of the gateway lead to an endpoint. */
export function isInternal(url: string): boolean {
  return /\.internal(?::\d+)?$/.test(url);
}

/**
 * @param ways as the API names them
 * @param url of the endpoint
 */
export function accessText(ways: readonly string[], url = ''): string {
  const needed = ways.flatMap((way) => WORDS[way] ?? []);
  const isOpen = needed.length === 0;
  const everyone = isInternal(url) ? 'everyone whom other endpoints forward here' : 'everyone with the URL';
  const first = isOpen && !ways.includes('policy') ? [everyone] : needed;
  const text = [
    ...(first.length > 0 ? [first.join(' and ') + (ways.includes('or-link') && !isOpen ? ', or a link' : '')] : []),
    ...(ways.includes('addresses') ? ['from allowed addresses'] : []),
    ...(ways.includes('policy') ? [isOpen ? 'its policy decides' : 'its policy decides for some requests'] : []),
  ].join('; ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const CHOICES = [
  { value: 'everyone', label: 'Everyone', hint: null },
  { value: 'password', label: 'A password', hint: 'A user name and a password, which is made for you.' },
  { value: 'sign-in', label: 'Sign-in', hint: 'People who sign in at the gateway.' },
  { value: 'link', label: 'A link', hint: 'Browsers that have opened a link, which you make with Share.' },
  {
    value: 'certificate',
    label: 'A certificate',
    hint: 'Clients with a certificate. Put that of your CA into the policy below, in place of the dots.',
  },
] as const;
export type AccessOption = (typeof CHOICES)[number]['value'];

/** People of the gateway by their emails, and groups of them. */
type Listed<T> = Readonly<Record<'people' | 'groups', T>>;

/** Who may come in, and whether share links let people in besides; a choice of null keeps the way. */
export interface WantedAccess {
  choice: AccessOption | null;
  links: boolean;
  /** Who may sign in; two empty lists: all people of the gateway. Left out: nothing changes. */
  admitted?: Listed<string[]>;
}

/** A field whose value is one name on each line. */
export interface NamesFieldProps {
  kind: keyof Listed<unknown>;
  label: string;
  hint: string;
  value: string;
  onInput: (value: string) => void;
}

export interface AccessFormProps {
  /** How clients come in now. */
  present: readonly string[];
  /** Of the endpoint. */
  url: string;
  /** Which people of the gateway may sign in now; null: the policy does not ask for them. */
  people: { readonly emails: readonly string[]; readonly groups: readonly string[] } | null;
  /** Chooses among the people and groups of the gateway; left out: one writes them, as nobody here knows them. */
  NamesField?: (props: NamesFieldProps) => JSX.Element;
  /** Asks for the choices that there are. */
  choices: () => Promise<readonly string[]>;
  /** Writes into the policy what was chosen; returns the password in it, if a new one is; undefined: it cannot be read. */
  admit: (request: WantedAccess) => Promise<string | null | undefined>;
  /** Busy while a choice is written: the policy is not saved meanwhile. */
  writing: Submission;
}

const AS_IT_IS = { value: '' as const, label: 'As the policy says now' };

/** What people need unless they have a link. */
const CAN_HAVE_LINKS: ReadonlySet<string> = new Set(['password', 'sign-in']);

/** What the form shows. */
interface Chosen {
  readonly choice: AccessOption | '';
  readonly links: boolean;
  /** As somebody writes them; null: the policy does not ask for people of the gateway. */
  readonly names: Listed<string> | null;
}

/** Chooses who may come in, which writes it into the policy; it takes effect when that is saved. */
export function AccessForm({
  present,
  url,
  people,
  NamesField = WrittenNames,
  choices,
  admit,
  writing: { problem, run },
}: AccessFormProps): JSX.Element {
  const supported = useSignal<readonly string[]>([]);
  const found = CHOICES.find(({ value }) => present.includes(value))?.value;
  const chosen = useSignal<Chosen>({
    choice: found ?? '',
    links: takesLinks(present),
    names: people && { people: people.emails.join('\n'), groups: people.groups.join('\n') },
  });
  const { choice, links, names } = chosen.value;
  const password = useSignal<string | null>(null);
  const waiting = useRef<Chosen | null>(null);
  /** What the policy says. */
  const written = useRef(chosen.value);
  const write = async () => {
    try {
      for (let next = waiting.current; next !== null; next = waiting.current) {
        waiting.current = null;
        const request = requestFor(next, written.current);
        const made = await admit(request);
        if (made === undefined) break;
        written.current = next;
        if (request.choice !== null) password.value = made;
      }
    } finally {
      // What was refused is not chosen.
      waiting.current = null;
      chosen.value = written.current;
    }
  };
  useEffect(() => {
    void run(async () => {
      supported.value = await choices();
      await write();
    });
  }, []);
  // On a slow link, somebody chooses again while a choice is written: the latest one counts.
  const request = (change: Partial<Chosen>) => {
    chosen.value = { ...chosen.value, ...change };
    waiting.current = chosen.value;
    void run(write);
  };
  const choose = (next: AccessOption) =>
    request({
      choice: next,
      links: links && CAN_HAVE_LINKS.has(next),
      ...(next === 'sign-in' && { names: names ?? { people: '', groups: '' } }),
    });
  return (
    <>
      <p class="hint">
        Now: {accessText(present, url)}. A choice is written into the policy below; all other rules stay.
      </p>
      {problem && <ProblemNotice title="The policy could not be changed" problem={problem} />}
      <SelectField
        label="Who may come in"
        value={choice}
        options={[...(found ? [] : [AS_IT_IS]), ...CHOICES.filter(({ value }) => supported.value.includes(value))]}
        onChange={(next) => next !== '' && choose(next)}
      />
      <p class="hint">
        {choice === 'everyone'
          ? `${accessText(['everyone'], url)}.`
          : CHOICES.find(({ value }) => value === choice)?.hint}
      </p>
      {choice === 'sign-in' &&
        names !== null &&
        NAMES.map(({ kind, ...texts }) => (
          <NamesField
            key={kind}
            kind={kind}
            {...texts}
            value={names[kind]}
            onInput={(value) => request({ names: { ...names, [kind]: value } })}
          />
        ))}
      {CAN_HAVE_LINKS.has(choice) && (
        <label class="check">
          <input
            type="checkbox"
            checked={links}
            onChange={(event) => request({ links: event.currentTarget.checked })}
          />
          <span>A link lets people in, too</span>
        </label>
      )}
      {password.value !== null && (
        <Notice tone="warning">
          <span>
            Copy it now. User name: <code>guest</code>, password:
          </span>
          <span class="with-copy">
            <code>{password.value}</code>
            <CopyButton text={password.value} what="the password" />
          </span>
        </Notice>
      )}
    </>
  );
}

const NAMES = [
  {
    kind: 'people',
    label: 'People',
    hint: 'By their email addresses. Without people and groups, all people of the gateway.',
  },
  { kind: 'groups', label: 'Groups', hint: 'People who are in one of these may come in, too.' },
] as const;

function WrittenNames({ label, hint, value, onInput }: NamesFieldProps): JSX.Element {
  return (
    <TextArea
      label={label}
      hint={`One on each line. ${hint}`}
      rows={2}
      isCode={false}
      value={value}
      onInput={onInput}
    />
  );
}

/** What changes a policy from what it says to what was chosen. */
function requestFor(next: Chosen, before: Chosen): WantedAccess {
  const choice = next.choice === '' || next.choice === before.choice ? null : next.choice;
  const isListed = next.choice === 'sign-in' && (choice !== null || next.names !== before.names);
  return {
    choice,
    links: next.links,
    ...(isListed &&
      next.names && { admitted: { people: namesIn(next.names.people), groups: namesIn(next.names.groups) } }),
  };
}

/** Each once: policies name so many at most. */
function namesIn(text: string): string[] {
  const lines = text.split('\n').map((line) => line.trim());
  return [...new Set(lines)].filter((line) => line !== '');
}
