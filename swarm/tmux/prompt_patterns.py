"""The words by which `swarm.tmux.prompts` knows a prompt, in English and Chinese.

A text of several rows is searched twice: with the rows joined by a space, and by nothing.
An agent breaks a line between two words or inside a word. Therefore a pattern allows that
a space is missing between two words, as in `git\\s*push`.

The words of danger are a net, not a wall: a command can hide what it does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


# Only a person answers a prompt whose text has one of these.
DANGER = _any(
    # commands that destroy
    r"\b(rm|rmdir|unlink|shred|wipefs|mkfs[.\w]*|fdisk|parted|truncate)\s+\S+",
    r"\bdd\s+\w+=",
    r"\bfind\b.{0,300}\s-(delete|exec)\b",
    r">\s*/dev/(sd|nvme|disk)",
    r"\bgit\s*(reset\s*--hard|clean\s+-|restore\b|checkout\s+(--|\.)|branch\s+-D|stash\s*(drop|clear))",
    r"\b(docker|podman)\b.{0,300}\b(rm|rmi|prune)\b",
    r"\b(kubectl|helm)\s*(delete|uninstall)|\bterraform\s*(destroy|apply)|\baws\s.{0,300}\brm\b",
    r"\b(drop|alter)\s*(table|database|schema|index|view|column|user|role)|\bdelete\s*from\b",
    r"\b(kill|pkill|killall)\s+\S+|\b(shutdown|reboot|poweroff)\b|\bsystemctl\s*(stop|disable|mask)",
    r":\(\)\s*\{",
    # commands that other people see
    r"\bgit\s*push\b.{0,300}(\s-f\b|--force|--mirror|--delete|\s\+\w)|\bforce[\s-]*push",
    r"\b(npm|cargo|poetry|uv)\s*publish\b|\btwine\s*upload\b|\bgem\s*push\b",
    # rights, and commands that hide what they do
    r"\b(sudo|doas|pkexec|runas)\b|\bsu\s+-|\bchmod\s+(-R|[0-7]*777|\S*\+s)|\bchown\s+-R",
    r"\b(curl|wget)\b.{0,300}\|\s*\w*sh\b|\beval\b|\bbase64\s+(-d|-D|--decode)",
    r"dangerously|bypass\s*permissions|\btrust(s|ed|ing)?\b|authenticity\s*of\s*host|fingerprint",
    # credentials and money
    r"pass(word|phrase|wd|code)|credential|\bsecrets?\b|\bapi[\s_-]*keys?\b|private\s*key",
    r"\b(access|auth\w*|api|bearer|refresh|github|npm|pypi)[\s_-]*token",
    r"\bid_(rsa|ed25519|ecdsa)\b|\.(ssh|aws|gnupg|kube)/|\.netrc\b|(^|[\s/'\"])\.env\b",
    r"credit\s*card|\b(purchase|payment)\b",
    # words
    r"\b(delet(e|es|ed|ing|ion)|eras(e|es|ed|ing)|destroy(s|ed|ing)?|wip(e|es|ed|ing)|purg(e|es|ed))\b",
    r"\boverwrit(e|es|ten|ing)\b|\buninstall|\birreversibl[ey]|\bpermanently\b|cannot\s*be\s*undone",
    r"\bproduction\b|\bwill\s*be\s*(removed|lost)\b",
    r"删除|刪除|移除|清空|清除|覆盖|覆蓋|格式化|销毁|卸载|重置|丢弃|强制推送|强推|终止",
    r"密码|口令|密钥|私钥|凭据|凭证|令牌|验证码|信任|管理员|提权|付款|支付|购买",
    r"不可(恢复|逆|撤销)|无法(恢复|撤销)|永久|生产环境",
)

# A line that asks for a secret, at the cursor.
SECRET = _any(
    r"(pass(word|phrase|code|wd)|\bpin|one-time\s*code|verification\s*code|token|api\s*key|secret|"
    r"user\s*name|login|密码|口令|验证码|密钥|令牌|用户名).{0,80}[:：]\s*$",
    r"\btype\b.{1,60}\bto\s*(confirm|delete|proceed|continue)\b.{0,40}$",
)

# A line that says which words it takes, at the cursor. The group is the word for yes.
YES_NO = re.compile(
    r"[\[(（【]\s*(?P<yes>y(?:es)?|是)\s*(?:[/|,，、]|or|或)\s*\[?\s*(?:n(?:o)?|否)\s*\]?\s*[\])）】]"
    r"\s*[?？:：>]?\s*$"
    r"|\b(?P<bare>y(?:es)?)\s*(?:/|or\s)\s*n(?:o)?\s*[?？:：]?\s*$",
    re.IGNORECASE,
)
# A question that does not say it.
QUESTION = _any(
    r"\b(do\s*you\s*want|would\s*you\s*like|are\s*you\s*sure|proceed|continue|confirm|overwrite|"
    r"allow|approve|is\s*th(is|at)\s*ok(ay)?|ok\s*to)\b[^?？]{0,120}[?？]\s*$",
    r"(是否|确认|确定|要不要|覆盖|继续|允许|同意|批准|可以)[^?？]{0,60}([?？]|吗)\s*[?？]?\s*$",
    r"(确认|确定)(删除|覆盖|执行|继续|操作)[!！。.:：]?\s*$",
)
# A line below a numbered list, at the cursor.
CHOICE = _any(
    r"(choice|choose|select|option|number|answer)[^:：?？>]{0,40}[:：?？>]\s*$",
    r"(选择|选项|序号|编号|输入)[^:：?？>]{0,20}[:：?？>]\s*$",
)

MORE = _any(r"^\s*-+\s*more\s*-+\s*(\(.{0,20}\))?\s*$", r"^\s*-+\s*更多\s*-+\s*$")
ENTER = _any(
    r"\b(press|hit|strike)\s*(the\s*)?[\[<(“\"']?(enter|return|any\s*key)\b[^?？]{0,80}$",
    r"\b(enter|return|any\s*key)\s*to\s*(continue|proceed|go\s*on|start|begin|exit|close)\b.{0,20}$",
    r"(按|敲|点击)\s*(一下|下)?\s*[\[<(【「“]?\s*(回车|enter|return|任意|任何)\s*[\]>)】」”]?\s*键?[^?？]{0,20}$",
    r"回车键?\s*(以|后)?(继续|确认)[.。…\s]*$",
)

# An option that says yes to this one matter, and one that says more.
PLAIN_YES = _any(
    r"^(yes|y|ok|okay|sure|allow|approve|accept|proceed|continue|confirm|run)\b",
    r"^(是|好|允许|同意|确认|确定|继续|批准|接受|执行)",
)
BROAD = _any(
    r"\b(always|again|all|every|session|never|remember|auto\w*|trust|and|don.t|skip|switch|mode)\b",
    r"不再|始终|总是|一律|全部|所有|会话|以后|永久|记住|自动|信任|并|模式|跳过",
)
OPTION_NUMBER = re.compile(r"^\(?(\d{1,2})[.)、:：]\s*")
MARKER = re.compile(r"^(\s*)([❯›▶▸➤→●◉>])(\s+)(?=\S)")

# A row below the options of a dialog, such as "Esc to cancel · Tab to amend".
HINT = _any(
    r"^\s*\W*(press\s*)?(esc|enter|return|tab|ctrl|shift|space|⏎|↵|↑|↓|\^[a-z]).{0,100}"
    r"(cancel|confirm|amend|navigate|select|quit|continue|back|explain|toggle|exit|edit|submit)",
    r"^\s*\W*(按\s*)?(esc|enter|回车|tab|↑|↓).{0,60}(取消|确认|选择|退出|返回|继续)",
)
# An agent left out a part of what it asks about.
SHORTENED = _any(
    r"(…|\.\.\.)\s*\+?\s*\d+\s*(more\s*)?(lines?|rows?|characters?)|\d+\s*more\s*lines?",
    r"\bview\s*all\b|\bto\s*expand\b|truncated|省略|展开",
)
# The first row of a dialog that has no frame.
OPENING = _any(r"^\s*(would\s*you\s*like\s*to|allow\s*(codex|command))\b")


@dataclass(frozen=True)
class OwnPatterns:
    """Patterns of the project, beside those of this module."""

    danger: Sequence[re.Pattern[str]] = ()
    confirm: Sequence[re.Pattern[str]] = ()
    enter: Sequence[re.Pattern[str]] = ()


NO_PATTERNS = OwnPatterns()
