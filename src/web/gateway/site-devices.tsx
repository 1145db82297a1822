import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { BotUser } from '../../management/resources/bot-user.ts';
import type { ReservedDomain } from '../../management/resources/reserved-domain.ts';
import { Button, ButtonLink } from '../ui/button.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { Choice } from '../ui/field.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { linkTo } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { type FormField, type FormValues, placedIn, type ShownOnce } from './form.ts';
import { FormFieldInput } from './form-field-input.tsx';
import { SECTION_TITLES } from './section.ts';
import { AGENTS_ADDRESS } from './sections/agents.tsx';
import { INVITE_FIELDS, INVITE_VALUES, inviteBody, joinCommand } from './sections/enrolment-keys.tsx';
import { api } from './session.ts';
import { Step } from './site-step.tsx';

type Way = 'invite' | 'authtoken';
/** What the devices run. */
const WAYS: readonly { value: Way; label: string; hint: string }[] = [
  {
    value: 'invite',
    label: 'This agent',
    hint: 'One code, with which each device joins and gets an authtoken of its own.',
  },
  {
    value: 'authtoken',
    label: 'Another client',
    hint: 'A bot user and an authtoken, to copy into the settings of one device.',
  },
];
const NO_CA = "# NGROK_CA_CERT=gateway-ca.pem  (a copy of the gateway's ca.pem, if it has no public certificate)";
const FIELDS: Record<Way, readonly FormField[]> = {
  invite: INVITE_FIELDS,
  authtoken: [
    {
      name: 'bot',
      member: 'name',
      label: 'Name of the bot user',
      hint: 'It owns the authtoken. Deactivating it blocks the whole site.',
      kind: 'text',
      required: 'Enter a name, such as that of the site.',
    },
  ],
};

/** The last steps of adding a site: the permission for its devices, and what to do on them. */
export function SiteDevices({ domain: { domain } }: { domain: ReservedDomain }): JSX.Element {
  const way = useSignal<Way>('invite');
  const values = useSignal<FormValues>({ ...INVITE_VALUES, bot: domain.replace(/^\*\./, '') });
  const { busy, problem: raised, onSubmit } = useSubmission();
  const fields = FIELDS[way.value];
  const problem = raised && placedIn(fields, values.value, raised);
  /** Kept for another attempt. */
  const bot = useSignal<BotUser | null>(null);
  const secret = useSignal<ShownOnce | null>(null);
  const set = (name: string) => (value: string) => {
    values.value = { ...values.value, [name]: value };
  };
  const createAuthtoken = async (): Promise<ShownOnce> => {
    const name = values.value.bot?.trim() ?? '';
    if (bot.value?.name !== name) bot.value = await api<BotUser>('POST', '/bot_users', { name });
    const body = { owner_id: bot.value?.id, acl: [`bind:${domain}`], description: name };
    const { token } = await api<{ token: string }>('POST', '/credentials', body);
    const lines = envLines(token, domain);
    return { text: lines, qr: lines };
  };
  const create = async () => {
    secret.value =
      way.value === 'authtoken'
        ? await createAuthtoken()
        : joinCommand(await api('POST', '/enrolment_keys', inviteBody({ ...values.value, site: domain })));
  };
  return (
    <>
      <Step number={3} title="Permission for devices">
        <form onSubmit={onSubmit(create)} noValidate>
          <Choice
            label="Devices run"
            value={way.value}
            options={WAYS}
            onChange={(value) => {
              way.value = value;
              secret.value = null;
            }}
          />
          {fields.map((field) => (
            <FormFieldInput
              key={field.name}
              field={field}
              isFirst={false}
              value={values.value[field.name] ?? ''}
              onInput={set(field.name)}
              problem={problem?.details[field.name]}
            />
          ))}
          {problem && (
            <ProblemNotice
              title={way.value === 'invite' ? 'The code was not created' : 'The authtoken was not created'}
              problem={problem}
              isMarked={(place) => fields.some(({ name }) => name === place)}
            />
          )}
          <Button kind="primary" type="submit" busy={busy}>
            {way.value === 'invite' ? 'Create code' : 'Create authtoken'}
          </Button>
        </form>
      </Step>
      {secret.value && <Lines way={way.value} secret={secret.value} />}
    </>
  );
}

function Lines({ way, secret: { text: lines, qr } }: { way: Way; secret: ShownOnce }): JSX.Element {
  return (
    <Step number={4} title="Set up the devices">
      <Notice tone="warning">Copy it now: it is shown only once.</Notice>
      <p>{way === 'invite' ? 'Run this on each device:' : 'Put these lines into the file .env of the device:'}</p>
      <div class="with-copy">
        <pre>{lines}</pre>
        <CopyButton text={lines} what="Lines for the device" />
      </div>
      {way === 'invite' && <p class="hint">Or scan the code:</p>}
      {qr !== undefined && <QrCode text={qr} label="Lines for the device" />}
      <p class="hint">The device appears here when it has joined:</p>
      <div class="actions">
        <ButtonLink href={linkTo(way === 'invite' ? 'devices' : 'agents')}>
          {SECTION_TITLES[way === 'invite' ? 'devices' : 'agents']}
        </ButtonLink>
        <ButtonLink href={linkTo('add-site')}>Add another site</ButtonLink>
      </div>
    </Step>
  );
}

/** What `device-agent setup` prints for a device. */
function envLines(token: string, domain: string): string {
  const agentDomain = domain.startsWith('*.') ? [`AGENT_DOMAIN=${domain.replace(/^\*/, 'agent')}`] : [];
  return [`NGROK_AUTHTOKEN=${token}`, `NGROK_SERVER_ADDR=${AGENTS_ADDRESS}`, NO_CA, ...agentDomain].join('\n');
}
