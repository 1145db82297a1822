import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { AccessChoices, AccessText } from '../../gateway/api/dashboard/access-text.ts';
import type { Endpoint } from '../../management/resources/endpoint.ts';
import { AccessForm } from '../ui/access-form.tsx';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { setter, TextArea } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { useSubmission } from '../ui/submission.ts';
import type { Action } from './section.ts';
import { api } from './session.ts';

/** Changes who may come in to a cloud endpoint, by its policy, which one sees before it is saved. */
export const accessAction = (endpoint: Endpoint): Action => ({
  name: 'access',
  label: 'Who may come in',
  dialog: (close, done) => <AccessDialog endpoint={endpoint} close={close} done={done} />,
});

function AccessDialog({
  endpoint,
  close,
  done,
}: {
  endpoint: Endpoint;
  close: () => void;
  done: () => void | Promise<void>;
}): JSX.Element {
  const text = useSignal(endpoint.traffic_policy ?? '');
  const { busy, problem, onSubmit } = useSubmission();
  const save = async () => {
    await api('PATCH', `/endpoints/${endpoint.id}`, { traffic_policy: text.value });
    await done();
  };
  return (
    <Dialog title={`Who may come in: ${endpoint.host}`} onClose={close} wide>
      <form onSubmit={onSubmit(save)} noValidate>
        {problem && <ProblemNotice title="The policy was not changed" problem={problem} />}
        <AccessForm
          present={endpoint.access ?? []}
          choices={async () => (await api<AccessChoices>('GET', '/dashboard/access')).choices}
          admit={async (request) => {
            const body = { traffic_policy: text.value, ...request };
            const answer = await api<AccessText>('POST', '/dashboard/access', body);
            text.value = answer.traffic_policy;
            return answer.password;
          }}
        />
        <TextArea label="Traffic policy" rows={12} value={text.value} onInput={setter(text)} />
        <div class="dialog-actions">
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy}>
            Save policy
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
