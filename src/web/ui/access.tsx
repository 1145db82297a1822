import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { CopyButton } from './button.tsx';
import { SelectField } from './field.tsx';
import { Notice, ProblemNotice } from './notice.tsx';
import type { Submission } from './submission.ts';

/** How a policy lets clients in, in words of people. */
const WORDS: Readonly<Record<string, string>> = {
  everyone: 'everyone with the URL',
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
  const everyone = isInternal(url) ? 'everyone whom other endpoints forward here' : WORDS.everyone;
  const first = isOpen && !ways.includes('policy') ? [everyone] : needed;
  const text = [
    ...(first.length > 0 ? [first.join(' and ') + (ways.includes('or-link') && !isOpen ? ', or a link' : '')] : []),
    ...(ways.includes('addresses') ? ['from allowed addresses'] : []),
    ...(ways.includes('policy') ? [isOpen ? 'its policy decides' : 'its policy decides for some requests'] : []),
  ].join('; ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const CHOICES = [
  { value: 'everyone', label: 'Everyone', hint: 'Everyone with the URL.' },
  { value: 'password', label: 'A password', hint: 'A user name and a password, which is made for you.' },
  { value: 'sign-in', label: 'Sign-in', hint: 'People who sign in at the gateway.' },
  { value: 'link', label: 'A link', hint: 'Browsers that have opened a link, which you make with Share.' },
  {
    value: 'certificate',
    label: 'A certificate',
    hint: 'Clients with a certificate. Put that of your CA into the policy below, in place of the dots.',
  },
] as const;
export type AccessChoice = (typeof CHOICES)[number]['value'];

/** Who may come in, and whether share links let people in besides; a choice of null changes only the latter. */
export interface AccessRequest {
  choice: AccessChoice | null;
  links: boolean;
}

export interface AccessFormProps {
  /** How clients come in now. */
  present: readonly string[];
  /** Asks for the choices that there are. */
  choices: () => Promise<readonly string[]>;
  /** Writes into the policy what was chosen; returns the password in it, if a new one is; undefined: it cannot be read. */
  admit: (request: AccessRequest) => Promise<string | null | undefined>;
  /** Busy while a choice is written: the policy is not saved meanwhile. */
  writing: Submission;
}

const AS_IT_IS = { value: '' as const, label: 'As the policy says now' };

/** What people need unless they have a link. */
const CAN_HAVE_LINKS: ReadonlySet<string> = new Set(['password', 'sign-in']);

/** Chooses who may come in, which writes it into the policy; it takes effect when that is saved. */
export function AccessForm({ present, choices, admit, writing: { problem, run } }: AccessFormProps): JSX.Element {
  const supported = useSignal<readonly string[]>([]);
  const found = CHOICES.find(({ value }) => present.includes(value))?.value;
  const choice = useSignal<AccessChoice | ''>(found ?? '');
  const links = useSignal(takesLinks(present));
  const password = useSignal<string | null>(null);
  const waiting = useRef<AccessRequest | null>(null);
  /** What the policy says. */
  const written = useRef({ choice: choice.value, links: links.value });
  const write = async () => {
    try {
      for (let request = waiting.current; request !== null; request = waiting.current) {
        waiting.current = null;
        const made = await admit(request);
        if (made === undefined) break;
        written.current = { choice: request.choice ?? written.current.choice, links: request.links };
        if (request.choice !== null) password.value = made;
      }
    } finally {
      // What was refused is not chosen.
      waiting.current = null;
      choice.value = written.current.choice;
      links.value = written.current.links;
    }
  };
  useEffect(() => {
    void run(async () => {
      supported.value = await choices();
      await write();
    });
  }, []);
  // On a slow link, somebody chooses again while a choice is written: the latest one counts.
  const request = (next: AccessChoice | null, isAllowed: boolean) => {
    waiting.current = { choice: next ?? waiting.current?.choice ?? null, links: isAllowed };
    void run(write);
  };
  const choose = (next: AccessChoice) => {
    choice.value = next;
    request(next, links.value && CAN_HAVE_LINKS.has(next));
  };
  const allowLinks = (isAllowed: boolean) => {
    links.value = isAllowed;
    request(null, isAllowed);
  };
  return (
    <>
      <p class="hint">Now: {accessText(present)}. A choice is written into the policy below; all other rules stay.</p>
      {problem && <ProblemNotice title="The policy could not be changed" problem={problem} />}
      <SelectField
        label="Who may come in"
        value={choice.value}
        options={[...(found ? [] : [AS_IT_IS]), ...CHOICES.filter(({ value }) => supported.value.includes(value))]}
        onChange={(next) => next !== '' && choose(next)}
      />
      <p class="hint">{CHOICES.find(({ value }) => value === choice.value)?.hint}</p>
      {CAN_HAVE_LINKS.has(choice.value) && (
        <label class="check">
          <input type="checkbox" checked={links.value} onChange={(event) => allowLinks(event.currentTarget.checked)} />
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
