import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { AccessChoice, PageSuggestions } from '../../agent/api/page/page-routes.ts';
import { accessText, takesLinks } from '../ui/access.ts';
import { call } from '../ui/api.ts';
import { CopyButton } from '../ui/button.tsx';
import { SelectField, setter } from '../ui/field.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { useSubmission } from '../ui/submission.ts';
import type { PolicyDraft } from './policy-draft.ts';

const CHOICES: readonly { value: AccessChoice; label: string; hint: string }[] = [
  { value: 'everyone', label: 'Everyone', hint: 'Everyone with the URL.' },
  { value: 'password', label: 'A password', hint: 'A user name and a password, which is made for you.' },
  { value: 'sign-in', label: 'Sign-in', hint: 'People who sign in at the gateway.' },
  { value: 'link', label: 'A link', hint: 'Browsers that have opened a link, which you make with Share.' },
  {
    value: 'certificate',
    label: 'A certificate',
    hint: 'Clients with a certificate. Put that of your CA into the policy below, in place of the dots.',
  },
];

const AS_IT_IS = { value: '' as const, label: 'As the policy says now' };

/** What people need unless they have a link. */
const CAN_HAVE_LINKS: ReadonlySet<AccessChoice> = new Set(['password', 'sign-in']);

/** Chooses who may come in, which writes it into the policy; it takes effect when that is saved. */
export function AccessForm({ draft, present }: { draft: PolicyDraft; present: readonly string[] }): JSX.Element {
  const { problem, run } = useSubmission();
  const supported = useSignal<readonly AccessChoice[]>([]);
  useEffect(
    () => void run(async () => setter(supported)((await call<PageSuggestions>('GET', '/page/suggestions')).access)),
    [],
  );
  const found = CHOICES.find(({ value }) => present.includes(value))?.value;
  const choice = useSignal<AccessChoice | ''>(found ?? '');
  const links = useSignal(takesLinks(present));
  const password = useSignal<string | null>(null);
  const choose = (next: AccessChoice) => {
    choice.value = next;
    const request = { choice: next, links: links.value && CAN_HAVE_LINKS.has(next) };
    void run(async () => {
      password.value = await draft.admit(request);
    });
  };
  const allowLinks = (isAllowed: boolean) => {
    links.value = isAllowed;
    void run(() => draft.admit({ choice: null, links: isAllowed }));
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
      {choice.value !== '' && CAN_HAVE_LINKS.has(choice.value) && (
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
