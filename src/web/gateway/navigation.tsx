import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { linkTo } from '../ui/router.ts';
import { gateway } from './strings.ts';

export type ViewName = keyof typeof gateway.sections;

const GROUPS: readonly { name: keyof typeof gateway.groups | null; views: readonly ViewName[] }[] = [
  { name: null, views: ['overview', 'add-site'] },
  { name: 'fleet', views: ['devices', 'agents', 'endpoints', 'invites'] },
  { name: 'names', views: ['domains', 'certificates'] },
  { name: 'traffic', views: ['edges', 'tunnel-groups', 'responses', 'ip-policies', 'authorities'] },
  { name: 'access', views: ['bot-users', 'authtokens', 'api-keys'] },
];

/** All views: beside the content, or on narrow screens behind a button that names the present one. */
export function Navigation({ view }: { view: ViewName }): JSX.Element {
  const isOpen = useSignal(false);
  return (
    <nav class="views" aria-label={gateway.menu.label}>
      <button
        type="button"
        class="button views-toggle"
        aria-expanded={isOpen.value}
        aria-controls="views"
        aria-label={`${gateway.menu.open}: ${gateway.sections[view]}`}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        {gateway.sections[view]}
      </button>
      <div id="views" class={isOpen.value ? 'groups open' : 'groups'}>
        {GROUPS.map(({ name, views }) => (
          <div key={name} class="group">
            {name !== null && <h2 id={`group-${name}`}>{gateway.groups[name]}</h2>}
            <ul aria-labelledby={name === null ? undefined : `group-${name}`}>
              {views.map((each) => (
                <li key={each}>
                  <a
                    href={each === 'overview' ? '#/' : linkTo(each)}
                    aria-current={each === view ? 'page' : undefined}
                    onClick={() => {
                      isOpen.value = false;
                    }}
                  >
                    {gateway.sections[each]}
                  </a>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </nav>
  );
}
