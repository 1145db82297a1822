import { CONDITION_IDS, CONDITIONS } from './condition-kinds.ts';

const CRITICAL = CONDITION_IDS.filter((id) => CONDITIONS[id].severity === 'critical');
const OTHERS = CONDITION_IDS.filter((id) => CONDITIONS[id].severity !== 'critical' && id !== 'device_offline');
const DAY_MINUTES = 1440;

/** Rules that suit most gateways, as bodies of `POST /message_rules`. */
export function usualRules(destinationId: string) {
  const destination_ids = [destinationId];
  return [
    {
      ...{ description: 'What stops traffic or changes', conditions: CRITICAL, destination_ids },
      ...{ after_minutes: 2, remind_minutes: 240 },
    },
    {
      ...{ description: 'Devices that are offline', conditions: ['device_offline' as const], destination_ids },
      ...{ after_minutes: 10, remind_minutes: DAY_MINUTES },
    },
    {
      ...{ description: 'What needs attention', conditions: OTHERS, destination_ids },
      ...{ after_minutes: 30, remind_minutes: DAY_MINUTES },
    },
  ];
}
