# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Bash completion for ovs-cost.

_ovs_cost() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    local prev=${COMP_WORDS[COMP_CWORD - 1]}
    local commands="top doctor record flight pcap show report diff merge"
    commands+=" convert"
    local reports="upcall tx bridge netlink revalidator"
    local live="--target --reports --interval --accounts --timeout"
    local command="" options="" word

    for word in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
        case " $commands " in
            *" $word "*) command=$word; break ;;
        esac
    done

    case $prev in
        -r|--reports)
            mapfile -t COMPREPLY < <(compgen -W "$reports" -- "$cur")
            return ;;
        -t|--target)
            mapfile -t COMPREPLY < <(compgen -W "ovs-vswitchd" -f -- "$cur")
            return ;;
        --to)
            mapfile -t COMPREPLY < <(compgen -W "otlp-json" -- "$cur")
            return ;;
        -f|--format)
            mapfile -t COMPREPLY < <(compgen -W \
                "html svg png text csv" -- "$cur")
            return ;;
        -l|--last)
            mapfile -t COMPREPLY < <(compgen -W "10s 1m 5m 15m" -- "$cur")
            return ;;
        --fail-if)
            mapfile -t COMPREPLY < <(compgen -W \
                "mean:total: p50:total: p99:total: rate:events:" -- "$cur")
            return ;;
    esac

    case $command in
        top) options="$live --batch --count" ;;
        doctor) options="$live --last --json" ;;
        flight) options="--target --timeout --last --kept --output --force" ;;
        pcap) options="--target --timeout --last --output --force" ;;
        record) options="$live --duration --output --rotate --keep" ;;
        show) options="--reports --hist --slowest --recorded" ;;
        report) options="--format --output --reports --title" ;;
        diff) options="--all --fail-if" ;;
        merge) options="--output --all" ;;
        convert) options="--to" ;;
        *)
            mapfile -t COMPREPLY < <(compgen -W \
                "$commands --help --version" -- "$cur")
            return ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -o filenames -F _ovs_cost ovs-cost
